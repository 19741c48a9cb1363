"""What a program may not give is refused at the call, and says what to give."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest
from conftest import Real
from fake import FakeServer

import tidewire
import tidewire.http

NAN = float("nan")
URL = "ws://localhost:1/ws"


async def handler(job: tidewire.Job[Any]) -> None:
    """Never called."""


#: refused at the call itself
CALLS: list[tuple[str, Callable[[tidewire.Client], object]]] = [
    ("credits", lambda tw: tw.stream("s").subscribe(credits=0)),
    ("credits", lambda tw: tw.stream("s").subscribe(credits=1.5)),  # type: ignore[arg-type]
    ("after", lambda tw: tw.stream("s").subscribe(after=-1)),
    ("after and at", lambda tw: tw.stream("s").subscribe(after=1, at=datetime.now())),
    ("after and start", lambda tw: tw.stream("s").subscribe(after=0, start="start")),
    ("at and start", lambda tw: tw.stream("s").subscribe(at=datetime.now(), start="end")),
    ("share", lambda tw: tw.stream("s").subscribe(share=True)),
    ("max", lambda tw: tw.stream("s").subscribe().pages(max=0)),
    ("wait", lambda tw: tw.stream("s").subscribe().pages(wait=-1)),
    ("credits", lambda tw: tw.queue("q").consume(credits=0)),
    ("lease", lambda tw: tw.queue("q").consume(lease=0)),
    ("concurrency", lambda tw: tw.queue("q").worker(concurrency=0)),
    ("concurrency", lambda tw: tw.queue("q").worker(concurrency=True)),
    ("lease", lambda tw: tw.queue("q").worker(lease=NAN)),
    ("history", lambda tw: tw.room("r").join(history=-1)),
    ("credits", lambda tw: tw.events().subscribe(credits=0)),
    ("page", lambda tw: tw.events().query(page=0)),
    ("attempts", lambda tw: tw.events().decisions(attempts=0, n=(tidewire.everything(), 0, max))),
    ("fold", lambda tw: tw.events().decisions()),
    ("after", lambda tw: tidewire.Retry(after=-1)),
]

#: refused when it is awaited, before anything is sent
AWAITED: list[tuple[str, Callable[[tidewire.Client], Awaitable[object]]]] = [
    ("timeout", lambda tw: tw.stream("s").publish(1, timeout=-1)),
    ("timeout", lambda tw: tw.stream("s").publish(1, timeout=NAN)),
    ("timeout", lambda tw: tw.stream("s").publish_all([1], timeout=NAN)),
    ("timeout", lambda tw: tw.queue("q").enqueue(1, timeout="5")),  # type: ignore[arg-type]
    ("delay", lambda tw: tw.queue("q").enqueue(1, delay=-1)),
    ("priority", lambda tw: tw.queue("q").enqueue(1, priority=-1)),
    ("unique_for", lambda tw: tw.queue("q").enqueue(1, unique_key="k", unique_for=NAN)),
    ("unique_for needs", lambda tw: tw.queue("q").enqueue(1, unique_for=1)),
    ("unique_key needs", lambda tw: tw.queue("q").enqueue(1, unique_key="k")),
    ("timeout", lambda tw: tw.events().append(tidewire.Event("E"), timeout=NAN)),
    ("timeout", lambda tw: tw.stream("s").subscribe().open(timeout=NAN)),
    ("timeout", lambda tw: tw.room("r").join().open(timeout=-0.5)),
    ("concurrency", lambda tw: tw.queue("q").work(handler, concurrency=-1)),
    ("drain", lambda tw: tw.queue("q").work(handler, drain=NAN)),
    (
        "attempts",
        lambda tw: tw.events().decide(
            tidewire.everything(), lambda n, e: n, 0, lambda n: [], attempts=0
        ),
    ),
]


@pytest.mark.parametrize(("name", "call"), CALLS)
def test_calls(name: str, call: Callable[[tidewire.Client], object]) -> None:
    with pytest.raises(ValueError, match=name):
        call(tidewire.connect(URL))


@pytest.mark.parametrize(("name", "call"), AWAITED)
async def test_awaited_calls(
    name: str, call: Callable[[tidewire.Client], Awaitable[object]]
) -> None:
    tw = tidewire.connect(URL)
    with pytest.raises(ValueError, match=name):
        await call(tw)
    assert tw.state is None


async def test_a_stop_of_a_worker() -> None:
    worker = tidewire.connect(URL).queue("q").worker()(handler)
    with pytest.raises(ValueError, match="drain"):
        await worker.stop(drain=-1)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("timeout", {"timeout": -1}),
        ("timeout", {"timeout": NAN}),
        ("max_pending", {"max_pending": 0}),
        ("max_pending_bytes", {"max_pending_bytes": -1}),
        ("token", {"token": ""}),
        ("api_key", {"api_key": ""}),
        ("not both", {"token": "t", "api_key": "k"}),
    ],
)
@pytest.mark.parametrize("connect", [tidewire.connect, tidewire.connect_sync])
def test_a_client(name: str, given: dict[str, Any], connect: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match=name):
        connect(URL, **given)


BAD_ADDRESSES = [
    "",
    "localhost:8080/ws",
    "/ws",
    "ftp://localhost/ws",
    "ws:///ws",
    "ws://:8080/ws",
    "ws://localhost:70000/ws",
    "ws://localhost:0/ws",
    "ws://localhost:port/ws",
    "ws://[::1/ws",
]


@pytest.mark.parametrize("url", BAD_ADDRESSES)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        tidewire.connect(url)
    with pytest.raises(ValueError, match="address"):
        tidewire.http.Client(url)


@pytest.mark.parametrize(
    ("url", "used"),
    [
        ("http://localhost:8080/ws", "ws://localhost:8080/ws"),
        ("https://rt.example.com/ws?a=b", "wss://rt.example.com/ws?a=b"),
        ("HTTPS://rt.example.com/ws", "wss://rt.example.com/ws"),
        ("wss://[::1]:8443/ws#part", "wss://[::1]:8443/ws"),
    ],
)
def test_addresses(url: str, used: str) -> None:
    assert tidewire.connect(url)._connection.url == used


async def test_an_address_of_http(real: Real) -> None:
    async with tidewire.connect("http" + real.url.removeprefix("ws")) as tw:
        assert (await tw.stream(real.create("streams")).publish(1)).position == 1


async def test_a_right_that_is_missing(fake: FakeServer) -> None:
    error = tidewire.Forbidden("", details={"verb": "publish", "kind": "stream", "name": "s"})
    assert (error.verb, error.kind, error.object) == ("publish", "stream", "s")


def test_too_big_of_the_server() -> None:
    error = tidewire.errors.from_wire({"code": "too_big", "message": "it is"})
    assert isinstance(error, tidewire.TooBig)
