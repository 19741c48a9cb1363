"""Which messages may share a request: those that the server cannot refuse alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: the longest key of the server, in bytes of UTF-8
MAX_KEY = 1024
#: Headers that are smaller than what the server takes in any spelling: it takes 64 KiB of JSON,
#: and a character has at most 6 bytes there. It counts the values of a request, too.
MAX_HEADERS = 16
MAX_HEADER_CHARACTERS = 8192


def may_share(key: str | None, headers: Mapping[str, Any] | None) -> bool:
    """Whether the server takes every message with this key and these headers."""
    return (key is None or _valid_key(key)) and (not headers or _valid_headers(headers))


def _valid_key(key: str) -> bool:
    return _is_text(key) and (len(key) * 4 <= MAX_KEY or len(key.encode()) <= MAX_KEY)


def _valid_headers(headers: Mapping[str, Any]) -> bool:
    if len(headers) > MAX_HEADERS:
        return False
    characters = 0
    for name, value in headers.items():
        if not _is_text(name) or not _is_text(value):
            return False
        characters += len(name) + len(value)
    return characters <= MAX_HEADER_CHARACTERS


def _is_text(value: object) -> bool:
    """Whether PostgreSQL can hold it as a text: without NUL, and without half a surrogate pair."""
    if type(value) is not str or "\0" in value:
        return False
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
