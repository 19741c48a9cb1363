"""What the tests share: a server that plays a script, and the address of a real one."""

from __future__ import annotations

import asyncio
import os
import urllib.request
import uuid
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit

import pytest
from fake import FakeServer


@pytest.fixture
async def fake() -> AsyncIterator[FakeServer]:
    """A server that does what the test says."""
    server = FakeServer()
    await server.start()
    yield server
    await server.stop()


class Real:
    """A real server, with names that no other test uses."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = ("https" if url.startswith("wss") else "http") + "://" + urlsplit(url).netloc

    def create(self, kind: str) -> str:
        """Makes a stream or queue."""
        name = f"{kind}-{uuid.uuid4().hex}"
        self.make(kind, name)
        return name

    def make(self, kind: str, name: str) -> None:
        """Makes a stream or queue of this name, unless it is there."""
        request = urllib.request.Request(f"{self.http}/v1/{kind}/{name}", method="POST")
        urllib.request.urlopen(request).close()


@pytest.fixture
def real() -> Real:
    """The server at TIDEWIRE_URL."""
    url = os.environ.get("TIDEWIRE_URL")
    if not url:
        pytest.skip("TIDEWIRE_URL names no server")
    return Real(url)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between attempts are short in tests."""

    def pause(attempt: int) -> float:
        return 0.01

    for module in ("connection", "requests", "attachment", "http"):
        monkeypatch.setattr(f"tidewire.{module}.pause", pause)


async def until(condition: Callable[[], object]) -> None:
    """Waits until something is so; the time-out of the test is the limit."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.002)
