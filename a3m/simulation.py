"""Nodes with sockets on a simulated network, in virtual time: to test topologies, ours and yours.

The same :class:`a3m.core.Core` that a :class:`a3m.Node` runs in a thread is driven here by
:class:`exon.simulation.Network`, in exactly the same way: so many datagrams come, time passes, what can leave leaves. A
seed decides about every loss, delay, partition and move, and the same seed always gives the same run.

An application is a function that is told its node's core when the node starts (and again when it restarts with nothing
in memory), makes sockets, and returns its *step*: called whenever something may have changed, it does what can be done
without waiting, with :meth:`~a3m.Socket.try_send` and :meth:`~a3m.Socket.try_receive`, and says whether it did
anything.

>>> received = []
>>> def consumer(core):
...     pull = PullSocket(core, "in")
...
...     def step():
...         message = pull.try_receive()
...         received.append(message)
...         return message is not WOULD_BLOCK or received.pop() is None
...
...     return step
>>> def producer(core):
...     push, todo = PushSocket(core, "out"), [b"one", b"two"]
...     push.link("consumer/in")
...
...     def step():
...         if todo and push.try_send(push.prepare(todo[0])) is not WOULD_BLOCK:
...             return bool(todo.pop(0))
...         return False
...
...     return step
>>> net = Topology(seed=1, loss=0.3, duplicate=0.2)
>>> net.start("consumer", consumer)
>>> net.start("producer", producer)
>>> net.run()
>>> received
[b'one', b'two']
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from a3m.core import Core
from a3m.patterns import PullSocket, PushSocket
from a3m.socket_core import WOULD_BLOCK
from exon.engine import Driven
from exon.options import Options
from exon.protocol import Node
from exon.simulation import Host, Network, Violation

__all__ = ["WOULD_BLOCK", "Application", "PullSocket", "PushSocket", "Step", "Topology", "Violation"]

_SPIN_STEPS = 10_000  # of one application at one moment

Step = Callable[[], bool]
Application = Callable[[Core], Step]


class Topology(Network):
    """Nodes with sockets, and the applications that use them."""

    def __init__(self, seed: int, **network: Any) -> None:
        """Take the same arguments as :class:`exon.simulation.Network`."""
        super().__init__(seed, **network)
        self.cores: dict[str, Core] = {}
        self.watch: Callable[[Core], None] = lambda _: None  # called after everything that a node does
        self._applications: dict[str, Application] = {}
        self._steps: dict[str, Step] = {}

    def start(self, host_id: str, application: Application, options: Options | None = None) -> None:
        """Add a node that runs an application."""
        self._applications[host_id] = application
        self._work(self.add(host_id, options))

    def restart(self, host_id: str) -> None:
        """End a node and start it again with nothing in memory; its application begins again, too."""
        super().restart(host_id)
        self._work(self.hosts[host_id])

    def act(self, host_id: str, action: Callable[[], object]) -> None:
        """Do something in the name of a node's application: its node does what follows from it."""
        if self.hosts[host_id].online:
            action()
            self._work(self.hosts[host_id])

    def wake(self, host_id: str, when: float) -> None:
        """Call the step of a node's application at a virtual time, unless the node has been restarted by then."""
        host = self.hosts[host_id]
        life = host.life
        self.at(when, lambda: self._work(host) if host.life == life else None)

    @property
    def quiet(self) -> bool:
        """Whether nothing is left: no socket, no message, and no node that remembers another."""
        return super().quiet and not any(core.sockets or core.wants_to_send for core in self.cores.values())

    def _build_on(self, node: Node) -> Driven:
        core = Core(node, random=Random(self.random.getrandbits(64)), time=lambda: self.now)
        self.cores[node.id] = core
        self._steps[node.id] = self._applications[node.id](core)
        return core

    def _turn(self, host: Host) -> None:
        # As in a real node: a turn of the engine, then the application's threads that it woke; each of them lets the
        # engine have another turn only if there is something to send.
        core, step = self.cores[host.id], self._steps[host.id]
        self._engine_turn(host, core)
        for _ in range(_SPIN_STEPS):
            if not step():
                break
            self.watch(core)
            if core.wants_to_send:
                self._engine_turn(host, core)
        else:
            raise Violation(f"the application of {host.id} spins at {self.now:.6f} s")

    def _engine_turn(self, host: Host, core: Core) -> None:
        core.expire(self.now)
        self._flush(host)
        self.watch(core)
