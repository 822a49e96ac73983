"""What came out of one measurement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
from attrs import frozen

from a3m.perf.numbered import Account
from a3m.perf.spec import Spec
from a3m.perf.transport import Transport
from a3m.perf.work import Asked, percentile


@frozen
class Latency:
    """How long round trips took, in seconds."""

    p50: float
    p90: float
    p99: float
    worst: float

    @classmethod
    def of(cls, times: Sequence[float]) -> Latency:
        """Of times in order.

        >>> Latency.of([0.001, 0.002, 0.003])
        Latency(p50=0.002, p90=0.003, p99=0.003, worst=0.003)
        """
        return cls(percentile(times, 0.5), percentile(times, 0.9), percentile(times, 0.99), times[-1])


@frozen(kw_only=True)
class Result:
    """One measurement. For round trips, ``sent`` counts the requests and ``account`` the replies."""

    spec: Spec
    rate: float
    """Messages, or round trips, per second."""
    seconds: float
    sent: int
    account: Account
    alone: bool
    """Whether the server measured for nobody else meanwhile."""
    handled: int | None = None
    """Requests, as the server counted them."""
    latency: Latency | None = None
    transport: Transport | None = None

    @classmethod
    def of_round_trips(
        cls,
        spec: Spec,
        asked: Sequence[Asked],
        *,
        handled: int,
        latency: Latency,
        transport: Transport | None,
        alone: bool,
    ) -> Result:
        """From what each client and the server have to say."""
        requests = sum(client.requests for client in asked)
        replies = sum(client.replies for client in asked)
        return cls(
            spec=spec,
            rate=sum(client.rate for client in asked),
            seconds=spec.seconds,
            sent=requests,
            # A reply that is not what was asked for is counted as damaged; a REQ takes one reply for each request.
            account=Account(
                received=replies,
                lost=max(0, requests - handled),
                doubled=max(0, handled - requests),
                damaged=requests - replies,
            ),
            handled=handled,
            latency=latency,
            transport=transport,
            alone=alone,
        )

    @property
    def is_exact(self) -> bool:
        """Whether everything came exactly once, and as it was sent."""
        return self.account.is_exact(self.sent) and self.handled in (None, self.sent)

    @property
    def megabytes(self) -> float:
        """Millions of bytes of messages per second; of round trips, in each direction."""
        return self.rate * self.spec.size / 1e6

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        data: dict[str, Any] = {
            "exact": self.is_exact,
            "per_second": round(self.rate, 1),
            "megabytes_per_second": round(self.megabytes, 3),
            "seconds": round(self.seconds, 3),
            "sent": self.sent,
            **attrs.asdict(self.account),
            "alone": self.alone,
        }
        if self.latency is not None:
            data["handled"] = self.handled
            data["latency_seconds"] = attrs.asdict(self.latency)
        if self.transport is not None:
            data["transport"] = self.transport.as_dict()
        return data
