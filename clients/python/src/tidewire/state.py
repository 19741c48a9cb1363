"""The states of a connection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Connecting:
    """An attempt is under way."""

    name = "connecting"


@dataclass(frozen=True, slots=True)
class Connected:
    """The server has said hello."""

    name = "connected"


@dataclass(frozen=True, slots=True)
class Waiting:
    """The next attempt follows in `retry_in` seconds, from when the state began."""

    name = "waiting"
    retry_in: float
    error: Exception


@dataclass(frozen=True, slots=True)
class Closed:
    """The client has ended, by `close` or with an error."""

    name = "closed"
    error: Exception | None = None


State = Connecting | Connected | Waiting | Closed
