"""JSON as it goes over the wire."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

encode_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode

#: a pause that the server names is at most a day, in milliseconds
LONGEST = 24 * 3600 * 1000


def encode(message: dict[str, Any]) -> bytes:
    """One message of the protocol."""
    return encode_json(message).encode()


def message_of(
    payload: str | bytes, key: str | None, headers: Mapping[str, Any] | None
) -> tuple[dict[str, Any], int]:
    """A message that is to be stored, and the size of its payload."""
    message: dict[str, Any]
    if isinstance(payload, str):
        size = len(payload) if payload.isascii() else len(payload.encode())
        message = {"payload": payload}
    else:
        message = {"payload_base64": base64.b64encode(payload).decode()}
        size = len(payload) * 4 // 3
    if key is not None:
        message["key"] = key
    if headers:
        message["headers"] = dict(headers)
    return message, size


def payload_in(message: dict[str, Any]) -> str | bytes:
    """The payload of a message that was received."""
    text = message.get("payload")
    if text is not None:
        return str(text)
    return base64.b64decode(message.get("payload_base64", ""))


def seconds_in(told: Any) -> float | None:
    """A pause that the server has named in milliseconds: a day at most. None: it is no number."""
    if type(told) not in (int, float) or told != told:
        return None
    return float(min(max(told, 0), LONGEST)) / 1000


def seconds_in_text(told: str | None, unit: int = 1) -> float | None:
    """A pause in a text, in milliseconds or in another unit of so many."""
    try:
        return seconds_in(float(told or "") * unit)
    except ValueError:
        return None


def milliseconds(seconds: float) -> int:
    """A time as the wire has it."""
    return max(0, round(seconds * 1000))
