"""Measures the client: `bench.py publish|subscribe|jobs --url ws://… --count N`."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import tidewire


def create(url: str, kind: str, name: str) -> None:
    """Makes a stream or queue, over HTTP."""
    scheme, address = ("https" if url.startswith("wss") else "http"), urlsplit(url).netloc
    urlopen(Request(f"{scheme}://{address}/v1/{kind}/{name}", method="POST")).close()


async def in_flight(count: int, width: int, one: Callable[[], Awaitable[object]]) -> None:
    """Calls `one` so many times, with so many calls at a time."""
    left = count

    async def lane() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await one()

    async with asyncio.TaskGroup() as group:
        for _ in range(width):
            group.create_task(lane())


async def publish(options: argparse.Namespace, name: str) -> float:
    create(options.url, "streams", name)
    async with tidewire.connect(options.url) as tw:
        stream = tw.stream(name, type=tidewire.text)
        payload = "x" * options.size
        await stream.publish(payload)
        started = time.perf_counter()
        await in_flight(options.count, options.in_flight, lambda: stream.publish(payload))
        return time.perf_counter() - started


async def subscribe(options: argparse.Namespace, name: str) -> float:
    create(options.url, "streams", name)
    async with tidewire.connect(options.url) as tw:
        stream = tw.stream(name, type=tidewire.text)
        payload = "x" * options.size
        for start in range(0, options.count, 500):
            await stream.publish_all([payload] * min(500, options.count - start))
        left = options.count
        started = time.perf_counter()
        async with stream.subscribe(after=0) as sub:
            async for _ in sub:
                left -= 1
                if not left:
                    break
        return time.perf_counter() - started


async def jobs(options: argparse.Namespace, name: str) -> float:
    create(options.url, "queues", name)
    async with tidewire.connect(options.url) as tw:
        queue = tw.queue(name, type=tidewire.text)
        payload = "x" * options.size
        for start in range(0, options.count, 500):
            await queue.enqueue_all([payload] * min(500, options.count - start))
        left, done = options.count, asyncio.Event()

        def settled(job: tidewire.Job[str], outcome: str) -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        async def handle(job: tidewire.Job[str]) -> None:
            """The least that a handler can do."""

        started = time.perf_counter()
        queue.worker(concurrency=options.in_flight, on_done=settled)(handle)
        await done.wait()
        return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("op", choices=["publish", "subscribe", "jobs"])
    parser.add_argument("--url", default="ws://localhost:8080/ws")
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--in-flight", type=int, default=16)
    options = parser.parse_args()
    run = {"publish": publish, "subscribe": subscribe, "jobs": jobs}[options.op]
    took = asyncio.run(run(options, f"bench-{uuid.uuid4().hex}"))
    result = {"op": options.op, "count": options.count, "seconds": round(took, 3)}
    print(json.dumps({**result, "per_second": round(options.count / took)}))


if __name__ == "__main__":
    main()
