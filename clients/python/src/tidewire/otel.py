"""Traces with OpenTelemetry, if the program has its API. Nothing depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

try:
    from opentelemetry import context, propagate, trace
except ImportError:  # pragma: no cover - tested in an environment without it
    _installed = False
else:
    _installed = True


_NONE: AbstractContextManager[Any] = nullcontext()


def active() -> bool:
    """Whether spans are recorded. Asked once for each iteration, since it costs some time."""
    return _installed and not isinstance(
        trace.get_tracer_provider(), (trace.ProxyTracerProvider, trace.NoOpTracerProvider)
    )


def inject(headers: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The headers, with those of the current span."""
    if not _installed or not context.get_current():  # this is asked for each message
        return headers
    if not trace.get_current_span().get_span_context().is_valid:
        return headers
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return {**carrier, **(headers or {})}


def process(traced: bool, name: str, headers: Mapping[str, Any]) -> AbstractContextManager[Any]:
    """A span for the processing of a message, linked to the one that has sent it."""
    if not traced:
        return _NONE
    sender = trace.get_current_span(propagate.extract(headers)).get_span_context()
    return trace.get_tracer("tidewire").start_as_current_span(
        f"process {name}",
        kind=trace.SpanKind.CONSUMER,
        links=[trace.Link(sender)] if sender.is_valid else [],
        attributes={"messaging.system": "tidewire", "messaging.destination.name": name},
    )
