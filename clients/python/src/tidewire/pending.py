"""Requests of the program, and what is known of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Any

from . import errors
from .message import Ack

BATCH_MESSAGES = 1000
BATCH_BYTES = 256 << 10

Answer = dict[str, Any]

# What may be stored although no answer came.
_CHANGING = {"publish", "enqueue", "append", "chat", "ack", "nack"}


class Policy(Enum):
    """What happens to a request that is not answered before its connection ends."""

    REPEAT = "sent again"
    ONCE = "sent once: the outcome is not known"
    BOUND = "belongs to its connection: the lease is lost"


class Call:
    """One call of the program, which waits for `future`."""

    __slots__ = ("admitted", "deadline", "future", "request", "size")

    def __init__(self, future: asyncio.Future[Any], deadline: float, size: int) -> None:
        #: there is room for it
        self.admitted = True
        self.future = future
        self.deadline = deadline
        self.size = size
        self.request: Request | None = None


class Request:
    """One message of the wire that wants an answer."""

    __slots__ = (
        "body",
        "calls",
        "doubt",
        "error",
        "id",
        "numbered",
        "on_answer",
        "open",
        "policy",
        "sent",
        "size",
    )

    def __init__(self, body: dict[str, Any], policy: Policy) -> None:
        #: given when it is first sent, so their order is that of the requests; 0 before
        self.id = 0
        self.body = body
        self.policy = policy
        self.calls: list[Call] = []
        #: the calls that still wait
        self.open = 0
        #: carries client and sequence
        self.numbered = False
        #: sent on this connection, and not answered
        self.sent = False
        #: sent before, and the outcome is not known
        self.doubt = False
        #: the last retryable refusal
        self.error: Exception | None = None
        self.size = 0
        #: in place of calls, for what the library itself asks
        self.on_answer: Callable[[Answer | Exception], None] | None = None

    def add(self, call: Call) -> None:
        """One more call waits for the answer."""
        call.request = self
        self.calls.append(call)
        self.open += 1
        self.size += call.size

    @property
    def wanted(self) -> bool:
        """Whether anybody still waits for the answer."""
        return self.open > 0 or self.on_answer is not None

    def fail(self, error: Exception) -> None:
        """Ends all calls with an error."""
        if self.on_answer is not None:
            self.on_answer(error)
        for call in self.calls:
            if not call.future.done():
                call.future.set_exception(error)


class Batch(Request):
    """Publishes of one stream and key, of one tick. Their calls get a position each."""

    __slots__ = ("key", "messages")

    def __init__(self, stream: str, key: str | None) -> None:
        super().__init__({"type": "publish", "stream": stream}, Policy.REPEAT)
        self.key = key
        self.numbered = True
        self.messages: list[dict[str, Any]] = []

    def takes(self, key: str | None, size: int) -> bool:
        """Whether there is room for a message."""
        return (
            key == self.key
            and len(self.messages) < BATCH_MESSAGES
            and self.size + size <= BATCH_BYTES
        )

    def append(self, message: dict[str, Any], call: Call) -> None:
        """One more message, and the call that waits for it."""
        self.messages.append(message)
        self.add(call)

    def halves(self) -> list[Batch]:
        """The same messages in two batches, in their order."""
        middle = len(self.messages) // 2
        halves = [Batch(self.body["stream"], self.key) for _ in range(2)]
        for index, message in enumerate(self.messages):
            halves[index >= middle].append(message, self.calls[index])
        return halves

    def seal(self) -> None:
        """Fixes what is sent, without the calls that were cancelled meanwhile."""
        waiting = [
            (call, message)
            for call, message in zip(self.calls, self.messages, strict=True)
            if not call.future.done()
        ]
        self.calls = [call for call, _ in waiting]
        self.messages = [message for _, message in waiting]
        if len(self.messages) == 1:
            self.body.update(self.messages[0])
        else:
            self.body["messages"] = self.messages

    def answer(self, answer: Answer) -> None:
        """Gives each call its own position."""
        first, duplicate = answer["position"], answer.get("duplicate", False)
        partition = answer.get("partition")
        for index, call in enumerate(self.calls):
            if not call.future.done():
                call.future.set_result(Ack(first + index, 1, duplicate, partition))


def unknown(message: str, request: Request) -> errors.OutcomeUnknown:
    """The error of a request that may be stored."""
    return errors.OutcomeUnknown(
        f"{message}: it may be stored, so check", retryable=False, request_id=request.id or None
    )


def late(request: Request | None, failure: Exception | None) -> Exception:
    """What a call gets whose time is over, with the reason why there is no connection."""
    if request is None:
        return errors.Timeout("too many requests wait for their answers", retryable=True)
    if request.body["type"] in _CHANGING and (request.sent or request.doubt):
        return unknown("no answer came in time", request)
    if request.error is not None and not request.sent:
        return request.error
    text = "no answer came in time" if request.sent else "it was not sent in time"
    if failure is not None:
        text += f", since there is no connection: {failure}"
    error = errors.Timeout(text, retryable=True, request_id=request.id or None)
    error.__cause__ = failure
    return error
