"""The errors of the library. Each has a code, and says what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .wire import seconds_in


class Error(Exception):
    """The base of all errors of this library, and each code that has no type of its own."""

    code = "error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        retryable: bool = False,
        request_id: int | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        self.retryable = retryable
        self.request_id = request_id
        self.details: Mapping[str, Any] = details or {}

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    @property
    def retry_after(self) -> float | None:
        """How many seconds to wait before another attempt, if the server has said so."""
        return seconds_in(self.details.get("retry_after_ms"))


class Conflict(Error):
    """An event that the condition excludes is stored: read it, and decide again."""

    code = "conflict"

    @property
    def position(self) -> int:
        """The first event that matches the condition."""
        return int(self.details.get("position", 0))

    @property
    def event_type(self) -> str:
        """The type of that event."""
        return str(self.details.get("event_type", ""))


class Forbidden(Error):
    """No rule grants this right. Do not send the request again with this token."""

    code = "forbidden"

    @property
    def verb(self) -> str:
        """The right that is missing."""
        return str(self.details.get("verb", ""))

    @property
    def kind(self) -> str:
        """The kind of the object, such as stream."""
        return str(self.details.get("kind", ""))

    @property
    def object(self) -> str:
        """The name of the object that was refused."""
        return str(self.details.get("name", ""))


class NotFound(Error):
    """There is no stream, queue, group or event store of that name."""

    code = "not_found"


class TooOld(Error):
    """The messages were dropped. Go on after `oldest` - 1, and tell your user."""

    code = "too_old"

    @property
    def oldest(self) -> int:
        """The first position that may still be kept."""
        return int(self.details.get("oldest", 0))

    @property
    def partition(self) -> int | None:
        """Of a group that shares partitions: commit `oldest` - 1 of it, and iterate again."""
        return self.details.get("partition")


class MessageTooLarge(Error):
    """The server does not read the message at `position`, which another program has stored.

    Go on after it, and tell your user.
    """

    code = "message_too_large"

    @property
    def position(self) -> int:
        """The message."""
        return int(self.details.get("position", 0))

    @property
    def size(self) -> int:
        """The bytes of its payload."""
        return int(self.details.get("size", 0))

    @property
    def oldest(self) -> int:
        """The first position after it."""
        return self.position + 1

    @property
    def partition(self) -> int | None:
        """Of a group that shares partitions: commit `position` of it, and iterate again."""
        return self.details.get("partition")


class HistoryLost(Error):
    """A failover has lost messages. Discard what came after `last`, and go on after it."""

    code = "history_lost"

    @property
    def last(self) -> int:
        """The last position before the loss."""
        return int(self.details.get("last", 0))

    @property
    def up_to(self) -> int:
        """The last position that was lost; 0 if it is not known."""
        return int(self.details.get("up_to", 0))


class LeaseLost(Error):
    """Another consumer has the message, or will get it. Do not settle it again."""

    code = "lease_lost"

    @property
    def lost(self) -> list[str]:
        """The deliveries that are lost."""
        return list(self.details.get("lost", ()))


class Fenced(Error):
    """This connection does not own the partition: discard its messages."""

    code = "fenced"


class OutcomeUnknown(Error):
    """The request was sent, and may have been stored: check."""

    code = "outcome_unknown"


class Timeout(Error, TimeoutError):
    """The time of a request was over before it was sent, or before it was answered."""

    code = "timeout"


class Closed(Error):
    """The client is closed."""

    code = "closed"


class SignedOut(Closed):
    """A token callback raises this if there will be no further token: the client ends."""


class TooBig(Error, ValueError):
    """The message is larger than the server takes."""

    code = "too_big"


class InvalidMessage(Error):
    """The codec refuses a payload."""

    code = "invalid_message"

    def __init__(self, message: str, *, raw: Any = None) -> None:
        super().__init__(message)
        #: the message, with its payload as `value`
        self.raw = raw


_TYPES: dict[str, type[Error]] = {
    kind.code: kind
    for kind in (
        Conflict,
        Forbidden,
        NotFound,
        TooOld,
        MessageTooLarge,
        HistoryLost,
        LeaseLost,
        Fenced,
        TooBig,
    )
}
_ENVELOPE = {"type", "id", "code", "message", "retryable", "subscription", "queue", "room"}


def from_wire(answer: Mapping[str, Any]) -> Error:
    """The error that the server has sent."""
    code = str(answer.get("code", "error"))
    kind = _TYPES.get(code, Error)
    request_id = answer.get("id")
    return kind(
        str(answer.get("message", code)),
        code=code,
        retryable=bool(answer.get("retryable", False)),
        request_id=request_id if isinstance(request_id, int) else None,
        details={name: value for name, value in answer.items() if name not in _ENVELOPE},
    )
