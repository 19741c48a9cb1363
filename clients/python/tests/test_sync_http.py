"""The synchronous facade, and the client of /v1."""

from __future__ import annotations

import threading
import uuid
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from conftest import Real

import tidewire
import tidewire.http
from tidewire import Event, tagged


def test_sync(real: Real) -> None:
    stream_name, queue_name = real.create("streams"), real.create("queues")
    mark = f"t:{uuid.uuid4().hex}"
    with tidewire.connect_sync(real.url) as tw:
        stream = tw.stream(stream_name)
        assert stream.publish(1).position == 1
        stream.publish_all([2, 3])
        with stream.subscribe(after=0) as sub:
            seen = []
            for m in sub:
                seen.append(m.value)
                if len(seen) == 3:
                    break
            assert (seen, sub.position) == ([1, 2, 3], 3)
        with stream.subscribe(group="g") as sub:
            for messages in sub.pages(wait=5, max=3):
                assert sub.commit(messages[-1]) == 3
                break
        assert not tw.queue(queue_name).enqueue("x").duplicate
        tw.queue(queue_name).enqueue_all(["y"])
        store = tw.events()
        store.append(Event("A", tags=[mark]))
        assert [e.type for e in store.query(tagged(mark))] == ["A"]
        assert store.project(tagged(mark)).counts == [1]
        more = store.decide(
            tagged(mark), lambda n, _: n + 1, 0, lambda n: [Event("B", tags=[mark])] if n else []
        )
        assert more is not None
        with tw.room(mark).join(user="ann", presence=True) as room:
            room.chat("hello")
            for event in room:
                assert isinstance(event, tidewire.Presence)
                break
            assert room.members == {"ann"}
        with pytest.raises(tidewire.NotFound):
            tw.stream("nowhere-at-all").publish(1)


def test_http(real: Real) -> None:
    stream, queue = real.create("streams"), real.create("queues")
    client = tidewire.http.Client(real.http)
    assert client.publish(stream, {"a": 1}, key="k", headers={"h": "x"}).position == 1
    assert client.publish_all(stream, [2, 3]).count == 2
    assert client.enqueue(queue, "job", delay=1).position == 1
    assert len(client.append(Event("A", tags=[uuid.uuid4().hex])).positions) == 1
    with pytest.raises(tidewire.NotFound):
        client.publish("nowhere-at-all", 1)


class Flaky(BaseHTTPRequestHandler):
    """Fails twice, and answers the third request."""

    keys: list[str | None] = []  # noqa: RUF012
    answers = ("cut", "busy", "ok")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        answer = self.answers[len(self.keys)]
        self.keys.append(self.headers["Idempotency-Key"])
        if answer == "cut":
            self.connection.close()
            self.close_connection = True
            return
        body = b'{"position":4,"count":1}'
        if answer == "busy":
            body = b'{"error":{"code":"busy","message":"","retryable":true,"retry_after_ms":1}}'
        self.send_response(200 if answer == "ok" else 429)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_http_repeats() -> None:
    Flaky.keys.clear()
    server = HTTPServer(("localhost", 0), Flaky)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        client = tidewire.http.Client(f"http://localhost:{server.server_port}")
        assert client.publish("s", 1).position == 4
        assert len(Flaky.keys) == 3
        assert len(set(Flaky.keys)) == 1
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    with pytest.raises(tidewire.Timeout):
        client.publish("s", 1, timeout=0.1)
