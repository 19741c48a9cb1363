"""What an answer of the server has to have. One without it comes from a broken server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .link import BrokenServer

Body = dict[str, Any]


def _number(value: Any) -> bool:
    return type(value) is int


def _numbers(value: Any, count: int) -> bool:
    return type(value) is list and len(value) == count and all(map(_number, value))


def _position(body: Body, answer: Body) -> bool:
    return _number(answer.get("position"))


def _subscribe(body: Body, answer: Body) -> bool:
    position = answer.get("position")
    return _number(position) or (position is None and "share" in body)


def _join(body: Body, answer: Body) -> bool:
    return "position" not in answer or _number(answer["position"])


def _chat(body: Body, answer: Body) -> bool:
    return "sequence" not in body or _number(answer.get("position"))


def _append(body: Body, answer: Body) -> bool:
    return _numbers(answer.get("positions"), len(body["events"]))


def _query(body: Body, answer: Body) -> bool:
    events = answer.get("events")
    return _number(answer.get("next")) and type(events) is list and all(map(is_event, events))


def _project(body: Body, answer: Body) -> bool:
    condition = answer.get("condition")
    return (
        _numbers(answer.get("counts"), len(body["queries"]))
        and type(condition) is dict
        and _number(condition.get("after", 0))
    )


_CHECKS: dict[str, Callable[[Body, Body], bool]] = {
    "publish": _position,
    "enqueue": _position,
    "commit": _position,
    "subscribe": _subscribe,
    "join": _join,
    "chat": _chat,
    "append": _append,
    "query": _query,
    "project": _project,
}


def is_event(event: Any) -> bool:
    """Whether a stored event is whole."""
    return (
        type(event) is dict
        and type(event.get("type")) is str
        and type(event.get("tags")) is list
        and _number(event.get("position"))
        and type(event.get("time")) is str
    )


def check_answer(body: Body, answer: Body) -> None:
    """Raises if the `ok` of a request has not what the program gets from it."""
    check = _CHECKS.get(body["type"])
    if check is not None and not check(body, answer):
        raise BrokenServer(f"the server has answered {body['type']} with an ok that is not whole")


def check_event(message: Body) -> None:
    """Raises if a message of a subscription of events has none."""
    if not is_event(message.get("event")):
        raise BrokenServer("the server has sent an event that is not whole")


def check_message(message: Body) -> None:
    """Raises if a message of a stream is not whole."""
    if (
        type(message.get("position")) is not int
        or type(message.get("time")) is not str
        or type(message.get("stream")) is not str
    ):
        raise BrokenServer("the server has sent a message that is not whole")


def check_position(message: Body) -> None:
    """Raises if a message that tells a position has none."""
    if type(message.get("position")) is not int:
        raise BrokenServer("the server has sent a position that is none")


def check_chat(message: Body) -> None:
    """Raises if a chat is not whole. Its other fields are those of its sender."""
    if type(message.get("text")) is not str:
        raise BrokenServer("the server has sent a chat without a text")


def check_delivery(message: Body) -> None:
    """Raises if a delivery of a queue is not whole."""
    if (
        type(message.get("position")) is not int
        or type(message.get("attempt")) is not int
        or type(message.get("delivery")) is not str
        or type(message.get("time")) is not str
    ):
        raise BrokenServer("the server has sent a delivery that is not whole")
