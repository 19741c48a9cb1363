"""Traces: a message carries the span that has sent it, and its processing is linked to it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import Real
from fake import FakeServer
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

import tidewire

_exporter = InMemorySpanExporter()


@pytest.fixture
def spans() -> InMemorySpanExporter:
    """The spans that have ended. The SDK takes one provider in the life of a process."""
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(_exporter))
        trace.set_tracer_provider(provider)
    _exporter.clear()
    return _exporter


def consumed(spans: InMemorySpanExporter) -> list[ReadableSpan]:
    """The spans of those who have got messages."""
    return [span for span in spans.get_finished_spans() if span.kind is SpanKind.CONSUMER]


def sender(span: ReadableSpan) -> SpanContext:
    """The one that a span is linked to."""
    (link,) = span.links
    context: SpanContext = link.context
    return context


async def test_the_span_of_the_consumer_is_linked_to_that_of_the_sender(
    real: Real, spans: InMemorySpanExporter
) -> None:
    tracer = trace.get_tracer("test")
    async with tidewire.connect(real.url) as tw:
        stream, queue = tw.stream(real.create("streams")), tw.queue(real.create("queues"))
        with tracer.start_as_current_span("send") as sent:
            await stream.publish(1, headers={"mine": "x"})
            await queue.enqueue(1)
        async with stream.subscribe(after=0) as sub:
            message = await anext(sub)
            inner = trace.get_current_span().get_span_context()
        assert message.headers["mine"] == "x"
        done = asyncio.Event()

        @queue.worker(on_done=lambda job, outcome: done.set())
        async def work(job: tidewire.Job[int]) -> None:
            """Nothing."""

        await done.wait()
        await work.stop()
    processed = consumed(spans)
    assert [span.name for span in processed] == [f"process {stream.name}", f"process {queue.name}"]
    for span in processed:
        assert sender(span).span_id == sent.get_span_context().span_id
        assert sender(span).trace_id == sent.get_span_context().trace_id
        assert span.attributes is not None
        assert span.attributes["messaging.system"] == "tidewire"
    assert processed[0].get_span_context() == inner  # the code of the program runs within it


async def test_each_publish_of_a_request_has_its_own_span(
    real: Real, spans: InMemorySpanExporter
) -> None:
    tracer = trace.get_tracer("test")

    async def send(stream: tidewire.Stream[Any], value: int) -> int:
        with tracer.start_as_current_span(f"send {value}") as span:
            await stream.publish(value)
            return span.get_span_context().span_id

    async with tidewire.connect(real.url) as tw:
        stream = tw.stream(real.create("streams"))
        sent = await asyncio.gather(*(send(stream, n) for n in range(5)))
        async with stream.subscribe(after=0) as sub:
            values = [(await anext(sub)).value for _ in range(5)]
    assert [sender(span).span_id for span in consumed(spans)] == [sent[n] for n in values]


async def test_traces_do_not_keep_publishes_apart(
    fake: FakeServer, spans: InMemorySpanExporter
) -> None:
    async with tidewire.connect(fake.url) as tw, asyncio.TaskGroup() as group:
        for n in range(3):
            with trace.get_tracer("test").start_as_current_span("send"):
                group.create_task(tw.stream("s").publish(n))
        peer = await fake.peer()
        request = await peer.take("publish")
        assert len({m["headers"]["traceparent"] for m in request["messages"]}) == 3
        await peer.ok(request, position=1)


async def test_a_handler_that_fails_has_a_span_that_says_so(
    fake: FakeServer, spans: InMemorySpanExporter
) -> None:
    async with tidewire.connect(fake.url) as tw:

        @tw.queue("q").worker()
        async def work(job: tidewire.Job[int]) -> None:
            raise ValueError("no luck")

        peer = await fake.peer()
        await peer.ok(await peer.take("consume"))
        await peer.delivery("q", "1")
        await peer.ok(await peer.take("nack"), count=1)
        stopping = asyncio.ensure_future(work.stop())
        await peer.ok(await peer.take("cancel"))
        await stopping
    (span,) = consumed(spans)
    assert span.status.status_code is StatusCode.ERROR
    assert not span.links


async def test_without_a_span_nothing_is_added(
    fake: FakeServer, spans: InMemorySpanExporter
) -> None:
    async with tidewire.connect(fake.url) as tw, asyncio.TaskGroup() as group:
        group.create_task(tw.stream("s").publish(1))
        peer = await fake.peer()
        request = await peer.take("publish")
        assert "headers" not in request
        await peer.ok(request, position=1)
