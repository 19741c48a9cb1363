"""Requests: sent in order, repeated until they are answered, and bounded."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from typing import Any

from . import errors
from .answers import check_answer
from .backoff import pause
from .bounds import Bounds
from .link import HIGH_WATER, BrokenServer, Link
from .message import Ack
from .pending import Answer, Batch, Call, Policy, Request, unknown
from .sharing import may_share
from .wire import encode

# What a refusal of one message of a batch says of all of them.
_OF_ALL = {
    "forbidden",
    "not_found",
    "queue_stream",
    "not_served",
    "invalid_name",
    "unauthenticated",
}
# What leaves open whether something is stored.
_OPEN = {"outcome_unknown", "sequence_too_old", "internal"}
#: how many messages of the library itself may be unsent or unanswered
OWN = 1000


class Requests:
    """The requests of one client, on whichever connection it has."""

    def __init__(
        self,
        start: Callable[[], None],
        *,
        timeout: float,
        batch: bool,
        max_pending: int,
        max_pending_bytes: int,
    ) -> None:
        self.client = secrets.token_hex(16)
        self.message_bytes: int | None = None
        #: called when a token has ended; true if another one comes
        self.renew: Callable[[], bool] = lambda: False
        self._start = start
        self._batch = batch
        self._bounds = Bounds(start, timeout, max_pending, max_pending_bytes)
        self._link: Link | None = None
        self._ids = 0
        self._sequence = 0
        self._queue: deque[Request | dict[str, Any]] = deque()
        self._batches: dict[str, Batch] = {}
        self._sent: dict[int, Request] = {}
        self._delayed: list[Request] = []
        #: the chats of rooms that the client is not in at the moment
        self._held: dict[str, list[Request]] = {}
        self._gate: asyncio.TimerHandle | None = None
        self._retries = 0
        self._scheduled = False
        #: messages of the library itself that are not sent, or not answered
        self._own = 0
        #: how many have ended since the queue was cleared of them
        self._unwanted = 0

    # What the nouns call.

    async def perform(
        self,
        body: dict[str, Any],
        *,
        policy: Policy = Policy.REPEAT,
        numbered: bool = False,
        size: int = 64,
        timeout: float | None = None,
    ) -> Answer:
        """Sends a request, and waits for its answer."""
        call = self._bounds.admit(size, timeout)
        if not call.admitted:
            await self._bounds.room(call)
        try:
            self._batches.clear()
            request = Request(body, policy)
            request.numbered = numbered
            request.add(call)
            self._enqueue(request)
            answer: Answer = await call.future
            return answer
        finally:
            self._leave(call)

    async def publish(
        self,
        stream: str,
        key: str | None,
        message: dict[str, Any],
        size: int,
        timeout: float | None,
    ) -> Ack:
        """Publishes one message, together with others of the same tick.

        One that the server may refuse goes alone in its turn: it would take the others with it.
        """
        call = self._bounds.admit(size, timeout)
        if not call.admitted:
            await self._bounds.room(call)
        try:
            shares = self._batch and may_share(key, message.get("headers"))
            batch = self._batches.get(stream) if shares else None
            if batch is None or not batch.takes(key, size):
                batch = Batch(stream, key)
                self._enqueue(batch)
                if shares:
                    self._batches[stream] = batch
                else:
                    self._batches.pop(stream, None)
            batch.append(message, call)
            ack: Ack = await call.future
            return ack
        finally:
            self._leave(call)

    def ask(self, body: dict[str, Any], on_answer: Callable[[Answer | Exception], None]) -> None:
        """A request of the library itself, for this connection alone."""
        if not self._count_own():
            return

        def ended(answer: Answer | Exception) -> None:
            self._own -= 1
            on_answer(answer)

        request = Request(body, Policy.BOUND)
        request.on_answer = ended
        self._enqueue(request)

    def tell(self, body: dict[str, Any]) -> None:
        """A message without an answer, for this connection alone."""
        if self._link is not None and self._count_own():
            self._queue.append(body)
            self._wake()

    def tell_now(self, body: dict[str, Any]) -> None:
        """The same, in one write with all that waits, before anything else runs."""
        if self._link is not None and self._count_own():
            self._queue.append(body)
            self._flush()

    def _count_own(self) -> bool:
        """The bound of the program's calls does not hold for what the library itself says."""
        self._own += 1
        if self._own > OWN and self._link is not None:
            self._link.fail(BrokenServer(f"the server has not answered {OWN} messages"))
            return False
        return True

    def drained(self) -> None:
        """The socket takes more."""
        if self._queue:
            self._wake()

    def _leave(self, call: Call) -> None:
        """Nobody waits for this call any more."""
        request = call.request
        if request is not None:
            request.open -= 1
            if not request.wanted:
                self._sent.pop(request.id, None)
                self._forget()
        self._bounds.leave(call)

    def _forget(self) -> None:
        """Drops requests that nobody wants from those that wait, if they are many."""
        if self._delayed and not any(r.wanted and r.error is not None for r in self._delayed):
            self._open_gate()  # what was refused has ended: the others wait for nothing
        self._unwanted += 1
        if self._unwanted < 64 or self._unwanted * 2 < len(self._queue) + len(self._delayed):
            return
        self._unwanted = 0
        self._queue = deque(r for r in self._queue if isinstance(r, dict) or r.wanted)
        for room, held in self._held.items():
            self._held[room] = [r for r in held if r.wanted]
        self._delayed = [r for r in self._delayed if r.wanted]

    def hold(self, room: str) -> None:
        """Lets chats wait until the client is in the room again."""
        self._held.setdefault(room, [])

    def release(self, room: str) -> None:
        """Sends the chats that wait, in the order of their calls."""
        held = self._held.pop(room, [])
        if held:
            self._queue.extendleft(reversed(held))
            self._wake()

    # Sending.

    def _enqueue(self, request: Request) -> None:
        self._queue.append(request)
        if not self._scheduled:
            self._wake()

    def _wake(self) -> None:
        self._start()
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        self._batches.clear()
        link = self._link
        while link is not None and link.writable and self._queue:
            frames = self._frames()
            if frames:
                link.send(frames)

    def _frames(self) -> list[bytes]:
        """What goes to the socket in one write: about as much as it takes at once."""
        frames: list[bytes] = []
        size = 0
        queue = self._queue
        while queue and size < HIGH_WATER:
            request = queue.popleft()
            if isinstance(request, dict):
                self._own -= 1
                frame: bytes | None = encode(request)
            else:
                frame = self._frame(request)
            if frame is not None:
                frames.append(frame)
                size += len(frame)
        return frames

    def _frame(self, request: Request) -> bytes | None:
        if not request.wanted:
            return None
        if self._held and request.body["type"] == "chat" and request.body["room"] in self._held:
            self._held[request.body["room"]].append(request)
            return None
        if request.numbered and any(delayed.numbered for delayed in self._delayed):
            self._delayed.append(request)  # it stays after those that are sent again
            return None
        if "id" not in request.body:
            self._seal(request)
        try:
            frame = encode(request.body)
        except ValueError as error:
            self._refused_here(request, error)
            return None
        limit = self.message_bytes
        if limit is not None and len(frame) > limit:
            text = f"{len(frame)} bytes are more than the {limit} of a message"
            self._refused_here(request, errors.TooBig(text))
            return None
        request.sent = True
        self._sent[request.id] = request
        return frame

    def _seal(self, request: Request) -> None:
        if isinstance(request, Batch):
            request.seal()
        self._ids += 1
        request.id = request.body["id"] = self._ids
        if request.numbered:
            request.body["client"] = self.client
            request.body["sequence"] = self._sequence
            self._sequence += 1

    def _refused_here(self, request: Request, error: Exception) -> None:
        if request.doubt:  # it was sent to a server with other limits
            request.fail(unknown(str(error), request))
        elif isinstance(request, Batch) and len(request.calls) > 1:
            self._queue.extendleft(reversed(request.halves()))  # in its place
        else:
            request.fail(error)

    # Answers.

    def answered(self, answer: Answer) -> None:
        """An `ok` of the server."""
        request = self._sent.get(answer["id"])
        if request is None:
            return
        check_answer(request.body, answer)  # if it fails, the request is sent again
        del self._sent[request.id]
        self._retries = 0
        if isinstance(request, Batch):
            request.answer(answer)
        elif request.on_answer is not None:
            request.on_answer(answer)
        else:
            future = request.calls[0].future
            if not future.done():
                future.set_result(answer)

    def refused(self, answer: Answer) -> None:
        """An `error` of the server with the id of a request."""
        request = self._sent.pop(answer["id"], None)
        if request is None:
            return
        request.sent = False
        error = errors.from_wire(answer)
        if request.policy is Policy.REPEAT and self._again(request, error):
            self._delay(request, error)
        elif (
            isinstance(request, Batch)
            and len(request.calls) > 1
            and error.code not in _OPEN
            and error.code not in _OF_ALL
        ):
            self._split(request)
        elif error.code == "sequence_too_old":
            request.fail(unknown(error.message, request))
        else:
            request.fail(error)

    def _again(self, request: Request, error: errors.Error) -> bool:
        if error.code == "token_expired":
            return self.renew()
        return error.retryable or (error.code == "outcome_unknown" and request.numbered)

    def _split(self, batch: Batch) -> None:
        """Sends each message of a batch alone, so that a bad one harms no other."""
        for call, message in zip(batch.calls, batch.messages, strict=True):
            if not call.future.done():
                single = Batch(batch.body["stream"], batch.key)
                single.append(message, call)
                self._enqueue(single)

    def _delay(self, request: Request, error: errors.Error) -> None:
        """All delayed requests go out together, in the order of their calls."""
        request.error = error
        request.doubt = request.doubt or error.code == "outcome_unknown"
        wait = pause(self._retries) if error.retry_after is None else error.retry_after
        if not self._delayed:
            self._retries += 1
        self._delayed.append(request)
        loop = asyncio.get_running_loop()
        at = loop.time() + wait
        if self._gate is not None:
            if self._gate.when() >= at:
                return
            self._gate.cancel()
        self._gate = loop.call_at(at, self._open_gate)

    def _open_gate(self) -> None:
        if self._gate is not None:
            self._gate.cancel()
            self._gate = None
        delayed, self._delayed = self._delayed, []
        delayed.sort(key=_order)
        self._queue.extendleft(reversed(delayed))
        self._wake()

    # The connection.

    def connected(self, link: Link, message_bytes: int | None, attach: Callable[[], None]) -> None:
        """Sends all that waits, after what `attach` asks."""
        self.message_bytes = self._bounds.message_bytes = message_bytes
        self._bounds.failure = None
        held, self._queue = self._queue, deque()
        self._link = link
        attach()
        self._queue.extend(held)
        self._wake()

    def disconnected(self) -> None:
        """Keeps what can be sent again, and ends the rest."""
        self._link = None
        self._batches.clear()
        if self._gate is not None:
            self._gate.cancel()
            self._gate = None
        waiting = [r for r in self._queue if isinstance(r, Request)]
        held = [request for all_held in self._held.values() for request in all_held]
        everything = [*self._sent.values(), *self._delayed, *held, *waiting]
        self._sent.clear()
        self._delayed.clear()
        self._queue.clear()
        self._held = {room: [] for room in self._held}
        for request in sorted(everything, key=_order):
            if request.policy is Policy.BOUND:
                request.fail(errors.LeaseLost("the connection has ended, and with it the lease"))
            elif request.policy is Policy.ONCE and request.sent:
                request.fail(unknown("the connection has ended before the answer", request))
            else:
                request.doubt = request.doubt or request.sent
                request.sent = False
                self._queue.append(request)
        self._own = 0

    async def answered_all(self, seconds: float) -> None:
        """Waits until no call waits for an answer, or so many seconds."""
        await self._bounds.answered_all(seconds)

    def unreachable(self, failure: Exception) -> None:
        """An attempt to connect has failed."""
        self._bounds.failure = failure

    def shut(self, error: Exception) -> None:
        """Takes no more calls."""
        self._bounds.closed = error

    def close(self, error: Exception) -> None:
        """Ends everything that waits."""
        self._link = None
        if self._gate is not None:
            self._gate.cancel()
            self._gate = None
        held = [request for all_held in self._held.values() for request in all_held]
        for request in [*self._sent.values(), *self._delayed, *held, *self._queue]:
            if isinstance(request, Request):
                request.fail(error)
        self._held.clear()
        self._sent.clear()
        self._delayed.clear()
        self._queue.clear()
        self._bounds.close(error)


def _order(request: Request) -> float:
    """Those that were sent come first, as they were sent; the others stay as they wait."""
    return request.id or float("inf")
