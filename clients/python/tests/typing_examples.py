"""What the types of the library say. mypy reads this file; nothing runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

import tidewire


@dataclass
class Order:
    id: int


class Mail(TypedDict):
    to: str


async def streams(tw: tidewire.Client) -> None:
    assert_type(tw.stream("s"), tidewire.Stream[Any])
    orders = tw.stream("orders", type=Order)
    assert_type(orders, tidewire.Stream[Order])
    assert_type(tw.stream("t", type=tidewire.text), tidewire.Stream[str])
    await orders.publish("no order")  # type: ignore[arg-type]
    async with orders.subscribe() as sub:
        async for message in sub:
            assert_type(message.value, Order)
        async for page in sub.pages():
            assert_type(page.values, list[Order])


async def queues(tw: tidewire.Client) -> None:
    mail = tw.queue("mail", type=Mail)

    @mail.worker()
    async def send(job: tidewire.Job[Mail]) -> None:
        assert_type(job.value["to"], str)

    assert_type(send, tidewire.Worker[Mail])
    async with mail.consume() as jobs:
        async for job in jobs:
            assert_type(job.value, Mail)


async def rooms(tw: tidewire.Client) -> None:
    async with tw.room("r").join() as room:
        async for event in room:
            match event:
                case tidewire.Chat(text=text):
                    assert_type(text, str)
                case tidewire.HistoryLost(last=last):
                    assert_type(last, int)
