"""The runner of the conformance suite: maps its commands to calls of the library.

It reads commands from standard input, and writes answers and events to standard output: one
JSON object a line. `clients/conformance/README.md` describes both.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict
from datetime import datetime
from typing import Any

import tidewire
from tidewire.state import Closed, Waiting

Command = dict[str, Any]
Result = dict[str, Any]


def write(line: dict[str, Any]) -> None:
    """One line for the suite."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def event(on: str, name: str, **fields: Any) -> None:
    """Something that the program sees."""
    write({"on": on, "event": name, **fields})


def described(error: BaseException | None) -> Result | None:
    """An error as the suite has it."""
    if error is None:
        return None
    if isinstance(error, asyncio.CancelledError):
        return {"code": "cancelled", "retryable": False, "message": "cancelled"}
    if not isinstance(error, tidewire.Error):
        return {"code": "application", "retryable": False, "message": repr(error)}
    fields: Result = {"code": error.code, "retryable": error.retryable, "message": error.message}
    for name in ("oldest", "last", "partition", "position", "size", "event_type", "lost"):
        if name in error.details:
            fields[name] = error.details[name]
    return fields


def seconds(command: Command, name: str) -> float | None:
    """A time of a command."""
    return None if command.get(name) is None else command[name] / 1000


def given(command: Command, **names: str) -> dict[str, Any]:
    """The fields that the command has, under the names of the library."""
    return {ours: command[theirs] for ours, theirs in names.items() if theirs in command}


class Number:
    """A codec that refuses all that is not a number."""

    def encode(self, value: float, /) -> str:
        return json.dumps(value)

    def decode(self, payload: str | bytes, /) -> float:
        value = json.loads(payload)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError("not a number")
        return value


CODECS: dict[str, Any] = {"json": None, "text": tidewire.text, "number": Number()}


class Iteration:
    """A subscription, membership or worker that a command has begun."""

    def __init__(self, subject: Any) -> None:
        self.subject = subject
        self.going = asyncio.Event()
        self.going.set()
        self.released = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class Runner:
    """The clients and iterations of one scenario."""

    def __init__(self) -> None:
        self.clients: dict[str, tidewire.Client] = {}
        self.going: dict[str, Iteration] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Reads commands until `exit` or the end."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(unhandled)
        reader = asyncio.StreamReader(limit=1 << 24)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            command = json.loads(line)
            if command["do"] == "exit":
                break
            self.spawn(self.answer(command))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Commands run side by side, and begin in their order."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def answer(self, command: Command) -> None:
        """Does one command."""
        try:
            ok = await getattr(self, "do_" + command["do"])(command)
        except (Exception, asyncio.CancelledError) as error:
            write({"id": command["id"], "error": described(error)})
        else:
            write({"id": command["id"], "ok": ok})

    # Clients.

    async def do_open(self, command: Command) -> Result:
        name = command["client"]
        token = command.get("token")
        options = given(
            command,
            batch="batch",
            max_pending="max_pending",
            max_pending_bytes="max_pending_bytes",
        )
        if "timeout_ms" in command:
            options["timeout"] = command["timeout_ms"] / 1000
        if isinstance(token, list):
            options["token"] = tokens(name, token)
        elif token is not None:
            options["token"] = token
        self.clients[name] = tidewire.connect(
            command["url"], on_state=lambda state: told(name, state), **options
        )
        return {}

    async def do_close(self, command: Command) -> Result:
        await self.clients[command["client"]].close()
        return {}

    # Requests.

    async def do_publish(self, command: Command) -> Result:
        stream = self.clients[command["client"]].stream(command["stream"])
        options = given(command, key="key", headers="headers")
        options["timeout"] = seconds(command, "timeout_ms")
        if "values" in command:
            call = stream.publish_all(command["values"], **options)
        else:
            call = stream.publish(command["value"], **options)
        ack = await cancelled_after(call, seconds(command, "cancel_ms"))
        return {"position": ack.position, "count": ack.count, "duplicate": ack.duplicate}

    async def do_enqueue(self, command: Command) -> Result:
        queue = self.clients[command["client"]].queue(command["queue"])
        options = given(command, key="key", headers="headers", priority="priority")
        options["delay"] = seconds(command, "delay_ms")
        options["timeout"] = seconds(command, "timeout_ms")
        if "values" in command:
            ack = await queue.enqueue_all(command["values"], **options)
        else:
            options["unique_key"] = command.get("unique_key")
            options["unique_for"] = seconds(command, "unique_ms")
            ack = await queue.enqueue(command["value"], **options)
        return {"position": ack.position, "duplicate": ack.duplicate}

    async def do_append(self, command: Command) -> Result:
        condition = None
        if "condition" in command:
            after = command["condition"].get("after", 0)
            condition = tidewire.Condition(query_of(command["condition"]["query"]), after)
        appended = await self.events(command).append(
            *map(event_of, command["events"]),
            condition=condition,
            timeout=seconds(command, "timeout_ms"),
        )
        return {"positions": appended.positions}

    async def do_query(self, command: Command) -> Result:
        query = query_of(command.get("query"))
        found = self.events(command).query(query, after=command.get("after", 0))
        return {"events": [shown(each) async for each in found]}

    async def do_project(self, command: Command) -> Result:
        projection = await self.events(command).project(*map(query_of, command["queries"]))
        return {"counts": projection.counts}

    async def do_decide(self, command: Command) -> Result:
        tries = 0

        def decide(count: int) -> list[tidewire.Event]:
            nonlocal tries
            tries += 1
            if count >= command["max"]:
                raise RuntimeError("full")
            return [event_of(command["event"])]

        appended = await self.events(command).decide(
            query_of(command["query"]),
            lambda count, _: count + 1,
            0,
            decide,
            attempts=command.get("attempts", 5),
        )
        return {"positions": appended.positions if appended else [], "tries": tries}

    def events(self, command: Command) -> tidewire.Events:
        return self.clients[command["client"]].events(command.get("store"))

    # Subscriptions.

    async def do_subscribe(self, command: Command) -> Result:
        name = command["as"]
        client = self.clients[command["client"]]
        stream = client.stream(command["stream"], type=CODECS[command.get("codec", "json")])
        options = given(
            command,
            after="after",
            start="from",
            group="group",
            share="share",
            keys="keys",
            headers="headers",
            credits="credits",
        )
        if command.get("on_gap") == "skip":
            options["gaps"] = "skip"
        if "at" in command:
            options["at"] = datetime.fromisoformat(command["at"])
        if command.get("on_invalid") == "report":
            options["on_invalid"] = lambda e: event(name, "invalid", position=e.raw.position)
        sub = stream.subscribe(
            on_gap=lambda g: event(name, "gap", **asdict(g)),
            on_assigned=lambda p: event(name, "assigned", partitions=p),
            on_revoked=lambda p: event(name, "revoked", partitions=p),
            **options,
        )
        await sub.open()
        self.begin(name, sub, self.all_messages(name, sub, command))
        return {} if sub.position is None else {"position": sub.position}

    async def messages(self, name: str, sub: Any, command: Command) -> None:
        going = self.going[name].going
        pause = command.get("pause_ms", 0) / 1000
        await going.wait()
        if "pages" in command:
            async for page in sub.pages(max=command["pages"]):
                for m in page:
                    show_message(name, m)
                event(name, "page", positions=[m.position for m in page])
                await asyncio.sleep(pause)
                await going.wait()
            return
        async for m in sub:
            show_message(name, m)
            if pause:
                await asyncio.sleep(pause)
            await going.wait()

    async def all_messages(self, name: str, sub: Any, command: Command) -> None:
        """Iterates again after each error that the command says it catches."""
        while True:
            try:
                return await self.messages(name, sub, command)
            except tidewire.InvalidMessage as error:
                if command.get("on_invalid") != "catch":
                    raise
                event(name, "invalid", position=error.raw.position)
            except (tidewire.TooOld, tidewire.MessageTooLarge) as error:
                if command.get("on_gap") != "commit":
                    raise
                event(name, "gap", code=error.code, partition=error.partition, oldest=error.oldest)
                await sub.commit(error.oldest - 1, partition=error.partition)

    async def do_follow(self, command: Command) -> Result:
        name = command["as"]
        query = query_of(command.get("query"))
        sub = self.events(command).subscribe(query, after=command.get("after", 0))
        await sub.open()
        self.begin(name, sub, self.follow(name, sub))
        return {"position": sub.position}

    async def follow(self, name: str, sub: tidewire.EventSubscription) -> None:
        going = self.going[name].going
        await going.wait()
        async for each in sub:
            event(name, "event", **shown(each))
            await going.wait()

    async def do_commit(self, command: Command) -> Result:
        sub = self.going[command["on"]].subject
        partition = command.get("partition")
        return {"position": await sub.commit(command["position"], partition=partition)}

    async def do_pause(self, command: Command) -> Result:
        self.going[command["on"]].going.clear()
        return {}

    async def do_resume(self, command: Command) -> Result:
        self.going[command["on"]].going.set()
        return {}

    async def do_unsubscribe(self, command: Command) -> Result:
        await self.going[command["on"]].subject.close()
        return {}

    def begin(self, name: str, subject: Any, work: Coroutine[Any, Any, None]) -> None:
        """Iterates in the background, and tells the end."""
        iteration = Iteration(subject)
        self.going[name] = iteration
        iteration.task = self.spawn(self.iterate(name, work))

    async def iterate(self, name: str, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:
            event(name, "end", error=described(error))
        else:
            event(name, "end", error=None)

    # Queues.

    async def do_work(self, command: Command) -> Result:
        name = command["as"]
        handlers = command.get("handle", "ack")
        order = handlers if isinstance(handlers, list) else [handlers]
        started = 0

        async def handle(job: tidewire.Job[Any]) -> None:
            nonlocal started
            how = order[min(started, len(order) - 1)]
            started += 1
            event(name, "job", position=job.position, attempt=job.attempt, value=job.value)
            try:
                await asyncio.sleep(command.get("work_ms", 0) / 1000)
                if how == "hold":
                    await self.going[name].released.wait()
            except asyncio.CancelledError:
                event(name, "cancelled", position=job.position)
                raise
            if how == "fail":
                raise RuntimeError("the handler has failed")
            if how == "retry":
                raise tidewire.Retry("again", after=seconds(command, "retry_ms"))
            if how == "dead":
                raise tidewire.Dead("dead")

        queue = self.clients[command["client"]].queue(command["queue"])
        options = given(command, concurrency="concurrency")
        if "lease_ms" in command:
            options["lease"] = command["lease_ms"] / 1000
        worker = queue.worker(
            on_done=lambda job, how: event(name, "done", position=job.position, outcome=how),
            **options,
        )(handle)
        self.going[name] = Iteration(worker)
        await worker.ready()
        self.going[name].task = self.spawn(self.iterate(name, worker.wait()))
        return {}

    async def do_release(self, command: Command) -> Result:
        self.going[command["on"]].released.set()
        return {}

    async def do_stop(self, command: Command) -> Result:
        drain = seconds(command, "drain_ms")
        worker = self.going[command["on"]].subject
        await (worker.stop() if drain is None else worker.stop(drain=drain))
        return {}

    # Rooms.

    async def do_join(self, command: Command) -> Result:
        name = command["as"]
        room = self.clients[command["client"]].room(command["room"])
        options = given(command, history="history", after="after", presence="presence", user="user")
        member = room.join(**options)
        await member.open()
        position = {"position": member.position} if member.stored else {}
        self.begin(name, member, self.chats(name, member))
        return position

    async def chats(self, name: str, member: tidewire.Membership) -> None:
        going = self.going[name].going
        await going.wait()
        async for each in member:
            show_room(name, each)
            await going.wait()

    async def do_chat(self, command: Command) -> Result:
        member = self.going[command["on"]].subject
        position = await member.chat(command["text"], timeout=seconds(command, "timeout_ms"))
        return {} if position is None else {"position": position}

    async def do_members(self, command: Command) -> Result:
        return {"members": sorted(self.going[command["on"]].subject.members)}

    async def do_leave(self, command: Command) -> Result:
        await self.going[command["on"]].subject.leave()
        return {}


def show_message(name: str, m: tidewire.Message[Any]) -> None:
    """A message of a subscription."""
    more: dict[str, Any] = {} if m.partition is None else {"partition": m.partition}
    more |= {"key": m.key} if m.key is not None else {}
    more |= {"headers": dict(m.headers)} if m.headers else {}
    event(name, "message", position=m.position, value=m.value, **more)


def show_room(name: str, each: tidewire.RoomEvent) -> None:
    """An event of a room."""
    match each:
        case tidewire.Chat(user=user, text=text, position=position):
            at = {} if position is None else {"position": position}
            event(name, "chat", user=user, text=text, **at)
        case tidewire.Presence(members=members, joined=joined, left=left):
            changes = {"joined": sorted(joined), "left": sorted(left)}
            event(name, "presence", members=sorted(members), **changes)
        case tidewire.Gap(missed=missed):
            event(name, "gap", missed=missed)
        case tidewire.HistoryLost(last=last, up_to=up_to):
            event(name, "history_lost", last=last, up_to=up_to)


def told(name: str, state: tidewire.State) -> None:
    """A change of the state of a client."""
    more: dict[str, Any] = {}
    if isinstance(state, Waiting):
        more["retry_ms"] = round(state.retry_in * 1000)
    if isinstance(state, Waiting | Closed):
        more["error"] = described(state.error)
    event(name, "state", state=state.name, **more)


def tokens(name: str, texts: list[str]) -> Callable[[bool], Awaitable[str]]:
    """A callback that hands out texts in turn, the last one again and again."""
    left = list(texts)

    async def token(refused: bool) -> str:
        event(name, "token", refused=refused)
        return left.pop(0) if len(left) > 1 else left[0]

    return token


async def cancelled_after(call: Coroutine[Any, Any, Any], after: float | None) -> Any:
    """Cancels a call after a time."""
    if after is None:
        return await call
    task = asyncio.ensure_future(call)
    asyncio.get_running_loop().call_later(after, task.cancel)
    return await task


def query_of(query: dict[str, Any] | None) -> tidewire.Query:
    """A query of a command."""
    whole: tidewire.Query | None = None
    for item in (query or {}).get("items", ()):
        part = tidewire.everything()
        if item.get("tags"):
            part = part.tagged(*item["tags"])
        if item.get("types"):
            part = part.types(*item["types"])
        whole = part if whole is None else whole | part
    return whole or tidewire.everything()


def event_of(fields: dict[str, Any]) -> tidewire.Event:
    """An event of a command."""
    return tidewire.Event(
        fields["type"], fields.get("tags", ()), fields.get("data"), fields.get("id")
    )


def shown(each: tidewire.Event) -> Result:
    """An event, for the suite."""
    more = {} if each.id is None else {"id": each.id}
    data = {} if each.data is None else {"data": each.data}
    return {"position": each.position, "type": each.type, "tags": list(each.tags), **data, **more}


def unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An error that nobody has caught."""
    error = context.get("exception")
    event("", "unhandled", message=f"{context['message']}: {error!r}")


if __name__ == "__main__":
    asyncio.run(Runner().run())
