"""Spans and counters, where the application has OpenTelemetry's API installed; the same in words for logging.

Spans are `pyfence.acquire` and `pyfence.transaction`; counted are `pyfence.leases.granted`, `.renewed` and `.lost`, and
`pyfence.refused`. Names of resources are on spans only, since there may be many; tokens and secrets are nowhere.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_NAME = "pyfence"
log = logging.getLogger(_NAME)
_COUNTERS = {
    "pyfence.leases.granted": "Leases granted to this process",
    "pyfence.leases.renewed": "Renewals that succeeded",
    "pyfence.leases.lost": "Leases that this process has lost, by reason",
    "pyfence.refused": "Refusals by the database, by code",
}


@cache
def _tracer() -> Any:
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace.get_tracer(_NAME)


@cache
def _counters() -> dict[str, Any]:
    try:
        from opentelemetry import metrics
    except ImportError:
        return {}
    meter = metrics.get_meter(_NAME)
    return {name: meter.create_counter(name, unit="1", description=text) for name, text in _COUNTERS.items()}


@contextmanager
def span(name: str, *resources: str) -> Iterator[None]:
    """A span around the block, with what it is about, and the class of an exception that leaves the block."""
    tracer = _tracer()
    if tracer is None:
        yield
        return
    attributes = {"pyfence.resources": list(resources)}
    # Not recorded by the API itself: the messages of exceptions name tokens.
    with tracer.start_as_current_span(
        name, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as current:
        try:
            yield
        except BaseException as exc:
            from opentelemetry.trace import StatusCode

            current.set_attribute("error.type", type(exc).__qualname__)
            current.set_status(StatusCode.ERROR)
            raise


def granted(resource: str, token: int) -> None:
    """A lease was granted."""
    log.debug("lease %r granted, token %d", resource, token)
    _count("pyfence.leases.granted")


def renewed(resource: str, token: int) -> None:
    """A lease was renewed."""
    log.debug("lease %r renewed, token %d", resource, token)
    _count("pyfence.leases.renewed")


def lost(reason: str) -> None:
    """A lease was lost."""
    _count("pyfence.leases.lost", reason=reason)


def refused(code: str | None, message: str) -> None:
    """The database refused a call or a write with one of pyfence's codes."""
    log.info("refused with %s: %s", code, message)
    _count("pyfence.refused", code=code or "unknown")


def _count(name: str, **labels: str) -> None:
    counter = _counters().get(name)
    if counter is not None:
        counter.add(1, labels)
