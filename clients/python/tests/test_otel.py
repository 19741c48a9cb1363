"""Traces: a message carries the span that has sent it, and its processing is linked to it."""

from __future__ import annotations

import asyncio

import pytest
from conftest import Real
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import tidewire


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """The spans that have ended."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(trace, "get_tracer", lambda name: provider.get_tracer(name))
    return exporter


async def test_links(real: Real, spans: InMemorySpanExporter) -> None:
    tracer = trace.get_tracer("test")
    async with tidewire.connect(real.url) as tw:
        stream, queue = tw.stream(real.create("streams")), tw.queue(real.create("queues"))
        with tracer.start_as_current_span("send") as span:
            await stream.publish(1)
            await queue.enqueue(1)
        async with stream.subscribe(after=0) as sub:
            message = await anext(sub)
            assert "traceparent" in message.headers
        done = asyncio.Event()

        @queue.worker(on_done=lambda job, outcome: done.set())
        async def work(job: tidewire.Job[int]) -> None:
            """Nothing."""

        await done.wait()
        await work.stop()
    processed = [s for s in spans.get_finished_spans() if s.name.startswith("process")]
    assert len(processed) == 2
    for one in processed:
        assert one.links[0].context.trace_id == span.get_span_context().trace_id
