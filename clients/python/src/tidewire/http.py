"""A client of `/v1` for programs that send a message now and then, with the standard library.

It holds no connection. Each request can be repeated, and is until it is answered.
"""

from __future__ import annotations

import http.client
import json
import secrets
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from . import errors, options
from .backoff import pause
from .codec import Codec, codec_for
from .events import Appended, Condition, Event
from .message import Ack, ack_of
from .wire import encode, message_of, milliseconds


class Client:
    """Sends to the server at `url`, such as `https://rt.example.com`. All threads may share it."""

    def __init__(
        self,
        url: str,
        *,
        token: str | Callable[[], str] | None = None,
        timeout: float = 30.0,
    ) -> None:
        options.secret("token", token)
        options.seconds("timeout", timeout)
        self._url = options.http_address(url)
        self._token = token
        self._timeout = timeout
        self._client = secrets.token_hex(16)
        self._sequence = 0
        self._lock = threading.Lock()

    def publish(
        self,
        stream: str,
        value: Any,
        *,
        key: str | None = None,
        headers: Mapping[str, Any] | None = None,
        type: Any = None,
        timeout: float | None = None,
    ) -> Ack:
        """Stores a message in a stream, once."""
        return self.publish_all(
            stream, [value], key=key, headers=headers, type=type, timeout=timeout
        )

    def publish_all(
        self,
        stream: str,
        values: Iterable[Any],
        *,
        key: str | None = None,
        headers: Mapping[str, Any] | None = None,
        type: Any = None,
        timeout: float | None = None,
    ) -> Ack:
        """Stores messages in a stream, all or none."""
        codec = codec_for(type)
        messages = [_message(codec, value, key, headers) for value in values]
        path = f"/v1/streams/{quote(stream, safe='')}/messages"
        return ack_of(self._post(path, {"messages": messages}, timeout))

    def enqueue(
        self,
        queue: str,
        value: Any,
        *,
        key: str | None = None,
        headers: Mapping[str, Any] | None = None,
        delay: float | None = None,
        priority: int | None = None,
        type: Any = None,
        timeout: float | None = None,
    ) -> Ack:
        """Stores a job in a queue, once."""
        body: dict[str, Any] = _message(codec_for(type), value, key, headers)
        options.seconds("delay", delay)
        if delay is not None:
            body["delay_ms"] = milliseconds(delay)
        if priority is not None:
            body["priority"] = priority
        return ack_of(self._post(f"/v1/queues/{quote(queue, safe='')}/messages", body, timeout))

    def append(
        self,
        *events: Event,
        condition: Condition | None = None,
        store: str | None = None,
        timeout: float | None = None,
    ) -> Appended:
        """Stores events, all or none, if the condition holds."""
        body: dict[str, Any] = {"events": [event.to_wire() for event in events]}
        if condition is not None:
            body["condition"] = condition.to_wire()
        if store is not None:
            body["store"] = store
        answer = self._post("/v1/events", body, timeout)
        return Appended(answer["positions"], answer.get("duplicate", False))

    def _post(self, path: str, body: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """Sends a request until it is answered or its time is over."""
        options.seconds("timeout", timeout)
        with self._lock:
            sequence = self._sequence
            self._sequence += 1
        data = encode(body)
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        attempt, sent = 0, False
        while True:
            error: Exception
            left = deadline - time.monotonic()
            try:
                return self._send(path, data, f"{self._client}:{sequence}", max(left, 0.001))
            except errors.Error as refused:
                if not refused.retryable and refused.code != "outcome_unknown":
                    raise _final(refused) from None
                sent = sent or refused.code == "outcome_unknown"
                error, wait = refused, refused.retry_after or pause(attempt)
            except (ConnectionRefusedError, socket.gaierror) as refused_connection:
                error, wait = refused_connection, pause(attempt)
            except (OSError, http.client.HTTPException, ValueError) as broken:
                error, wait, sent = broken, pause(attempt), True
            attempt += 1
            if time.monotonic() + wait >= deadline:
                if sent:
                    raise errors.OutcomeUnknown(f"no answer came in time: {error}") from error
                if isinstance(error, errors.Error):
                    raise error
                raise errors.Timeout(f"it was not sent in time: {error}", retryable=True) from error
            time.sleep(wait)

    def _send(self, path: str, data: bytes, name: str, timeout: float) -> dict[str, Any]:
        request = urllib.request.Request(self._url + path, data, method="POST")
        request.add_header("Content-Type", "application/json")
        request.add_header("Idempotency-Key", name)
        token = self._token() if callable(self._token) else self._token
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            with error:
                raise _problem(error) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, OSError):
                raise error.reason from None
            raise


def _message(
    codec: Codec[Any], value: Any, key: str | None, headers: Mapping[str, Any] | None
) -> dict[str, Any]:
    message, _ = message_of(codec.encode(value), key, headers)
    return message


def _problem(error: urllib.error.HTTPError) -> errors.Error:
    text = error.read()
    try:
        return errors.from_wire(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        again = error.code in (429, 502, 503, 504)
        return errors.Error(f"HTTP {error.code}", code="http", retryable=again)


def _final(error: errors.Error) -> errors.Error:
    if error.code == "sequence_too_old":
        return errors.OutcomeUnknown(f"{error.message}: it may be stored, so check")
    return error
