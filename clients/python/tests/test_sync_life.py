"""The thread of the synchronous client: its end, forks, and calls from within."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

import tidewire
from tidewire.sync import Portal


def test_a_call_from_the_thread_of_the_loop_is_refused() -> None:
    portal = Portal()
    seen: list[BaseException] = []

    async def work() -> None:
        try:
            portal.call(asyncio.sleep(0))
        except RuntimeError as error:
            seen.append(error)

    caller = threading.Thread(target=portal.call, args=(work(),), daemon=True)
    caller.start()
    caller.join(2)
    assert not caller.is_alive()
    assert len(seen) == 1
    portal.stop()


def test_a_sync_client_that_is_closed_says_so() -> None:
    tw = tidewire.connect_sync("ws://localhost:1/ws")
    tw.close()
    tw.close()
    with pytest.raises(tidewire.Closed):
        tw.stream("s").publish(1)


def test_a_sync_client_in_a_fork_says_so() -> None:
    portal = Portal()
    portal.call(asyncio.sleep(0))
    portal._pid = os.getpid() + 1  # as a fork of the process sees it
    with pytest.raises(RuntimeError, match="fork"):
        portal.call(asyncio.sleep(0))
    portal._pid = os.getpid()
    portal.stop()
