"""Events for the log: structlog in front of the standard library's ``logging``, logger ``"exon"``.

So an application decides with the means it has where they go and how they look. If it decides nothing, warnings and
errors go to standard error, never to standard output, which may be somebody's data.
"""

from __future__ import annotations

import logging
from typing import Any

import structlog
from structlog.typing import EventDict, WrappedLogger


def _render(_: WrappedLogger, __: str, event: EventDict) -> tuple[tuple[str], dict[str, Any]]:
    """One line for people; the same as data in the record's attribute ``event`` for programs."""
    exc_info = event.pop("exc_info", None)
    line = " ".join([str(event["event"]), *(f"{key}={value!r}" for key, value in event.items() if key != "event")])
    return (line,), {"exc_info": exc_info, "extra": {"event": dict(event)}}


log: structlog.stdlib.BoundLogger = structlog.wrap_logger(
    logging.getLogger("exon"),
    wrapper_class=structlog.stdlib.BoundLogger,
    processors=[structlog.stdlib.filter_by_level, _render],
)
