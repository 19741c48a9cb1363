"""The web application: takes orders for reports, and knows which are ready."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from reports import QUEUE, STREAM, URL, Done, Report

import tidewire

tw = tidewire.connect(URL)
queue = tw.queue(QUEUE, type=Report)
ordered: set[str] = set()
done: dict[str, Done] = {}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with tw, tw.stream(STREAM, type=Done).subscribe(after=0) as results:
        follower = asyncio.create_task(follow(results))
        yield
        follower.cancel()


async def follow(results: tidewire.Subscription[Done]) -> None:
    async for message in results:
        done[message.value.id] = message.value


app = FastAPI(lifespan=lifespan)


class Order(BaseModel):
    customer: str
    year: int


@app.post("/reports", status_code=202)
async def order(order: Order) -> dict[str, str]:
    report = Report(f"{order.customer}-{order.year}", order.customer, order.year)
    await queue.enqueue(report, unique_key=report.id, unique_for=600)
    ordered.add(report.id)
    return {"report": report.id}


@app.get("/reports/{number}")
async def state(number: str) -> dict[str, str | int]:
    if number in done:
        return {"state": "done", "pages": done[number].pages}
    if number in ordered:
        return {"state": "waiting"}
    raise HTTPException(404, "nobody has ordered this report")
