"""What a program may give. What it may not is refused at the call, with what to give."""

from __future__ import annotations

from urllib.parse import urlsplit

_WEBSOCKET = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
_HTTP = {"http": "http", "https": "https"}


def seconds(name: str, given: float | None) -> None:
    """A time: None, or a number of seconds from 0 on."""
    if given is None or (_is_number(given) and given >= 0):
        return
    raise ValueError(f"{name}: give seconds, 0 or more, not {given!r}")


def positive_seconds(name: str, given: float) -> None:
    """A time that is more than nothing."""
    if not _is_number(given) or not 0 < given < float("inf"):
        raise ValueError(f"{name}: give seconds, more than 0, not {given!r}")


def count(name: str, given: int, least: int = 1) -> None:
    """A whole number."""
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise ValueError(f"{name}: give a whole number, {least} or more, not {given!r}")


def optional_count(name: str, given: int | None, least: int = 0) -> None:
    """None, or a whole number."""
    if given is not None:
        count(name, given, least)


def at_most_one(**given: object) -> None:
    """Options of which each says the same thing in another way."""
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise ValueError(f"give one of {', '.join(given)}, not {' and '.join(named)}")


def secret(name: str, given: object) -> None:
    """A token or API key: it may be missing, but not empty."""
    if given == "":
        raise ValueError(f"{name} is empty: leave it out if the server needs none")


def websocket_address(url: str) -> str:
    """The address of the WebSocket: http and https stand for ws and wss."""
    return _address(url, _WEBSOCKET, "ws://localhost:8080/ws")


def http_address(url: str) -> str:
    """The address of a server, for HTTP."""
    return _address(url, _HTTP, "http://localhost:8080").rstrip("/")


def _address(url: str, schemes: dict[str, str], example: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{url!r} is no address of a server: {error}") from None
    scheme = schemes.get(parts.scheme)
    if scheme is None or not parts.hostname or port == 0:
        raise ValueError(f"{url!r} is no address of a server: give one like {example}")
    return parts._replace(scheme=scheme, fragment="").geturl()


def _is_number(given: object) -> bool:
    """NaN is none."""
    return isinstance(given, (int, float)) and not isinstance(given, bool) and given == given
