"""The same as bench.py with nats-py, on JetStream: `nats_bench.py publish|subscribe|jobs`."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
import uuid
from typing import Any

import nats
from nats.js.api import ConsumerConfig, RetentionPolicy

from bench import in_flight


async def fill(js: Any, subject: str, options: argparse.Namespace) -> None:
    payload = b"x" * options.size
    await in_flight(options.count, 256, lambda: js.publish(subject, payload))


async def publish(js: Any, name: str, options: argparse.Namespace) -> float:
    await js.add_stream(name=name, subjects=[name])
    started = time.perf_counter()
    payload = b"x" * options.size
    await in_flight(options.count, options.in_flight, lambda: js.publish(name, payload))
    return time.perf_counter() - started


async def subscribe(js: Any, name: str, options: argparse.Namespace) -> float:
    await js.add_stream(name=name, subjects=[name])
    await fill(js, name, options)
    started = time.perf_counter()
    sub = await js.subscribe(name, ordered_consumer=True)
    for _ in range(options.count):
        await sub.next_msg(timeout=30)
    return time.perf_counter() - started


async def jobs(js: Any, name: str, options: argparse.Namespace) -> float:
    await js.add_stream(name=name, subjects=[name], retention=RetentionPolicy.WORK_QUEUE)
    await fill(js, name, options)
    config = ConsumerConfig(max_ack_pending=options.in_flight)
    sub = await js.pull_subscribe(name, durable="bench", config=config)
    started = time.perf_counter()
    left = options.count
    while left:
        messages = await sub.fetch(min(options.in_flight, left), timeout=30)
        await asyncio.gather(*(message.ack_sync() for message in messages))
        left -= len(messages)
    return time.perf_counter() - started


async def run(options: argparse.Namespace) -> float:
    connection = await nats.connect(options.url)
    work = {"publish": publish, "subscribe": subscribe, "jobs": jobs}[options.op]
    try:
        return await work(connection.jetstream(), f"bench-{uuid.uuid4().hex}", options)
    finally:
        await connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("op", choices=["publish", "subscribe", "jobs"])
    parser.add_argument("--url", default="nats://localhost:4222")
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--in-flight", type=int, default=16)
    options = parser.parse_args()
    took = asyncio.run(run(options))
    result = {"op": options.op, "count": options.count, "seconds": round(took, 3)}
    print(json.dumps({**result, "per_second": round(options.count / took)}))


if __name__ == "__main__":
    main()
