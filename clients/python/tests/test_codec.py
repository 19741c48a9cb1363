"""Values of the program, as payloads and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Literal, NotRequired, TypedDict

import pydantic
import pytest

import tidewire
from tidewire.codec import codec_for


class Colour(Enum):
    RED = "red"


@dataclass
class Line:
    name: str
    amount: int | None = None


@dataclass
class Order:
    id: int
    lines: list[Line] = field(default_factory=list)
    at: datetime | None = None
    colour: Colour = Colour.RED
    kind: Literal["new", "old"] = "new"
    extra: dict[str, tuple[int, str]] = field(default_factory=dict)
    parent: Order | None = None


class Mail(TypedDict):
    to: str
    copies: NotRequired[list[str]]


class Model(pydantic.BaseModel):
    id: int
    at: datetime


WHEN = datetime.fromisoformat("2026-11-26T08:05:07+00:00")
VALUES: list[tuple[Any, Any]] = [
    (None, {"a": [1, None, "ü"]}),
    (Order, Order(1)),
    (Order, Order(1, [Line("x", 2)], WHEN, extra={"a": (1, "b")}, parent=Order(2))),
    (Mail, {"to": "a", "copies": ["b"]}),
    (list[Line], [Line("x"), Line("y", 1)]),
    (Model, Model(id=1, at=WHEN)),
    (pydantic.TypeAdapter(list[Model]), [Model(id=1, at=WHEN)]),
    (tidewire.text, "plain"),
    (tidewire.binary, b"\xff\x00"),
    (int, 7),
    (float, 1.0),
]


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_there_and_back(kind: Any, value: Any) -> None:
    codec = codec_for(kind)
    assert codec.decode(codec.encode(value)) == value


BAD: list[tuple[Any, str]] = [
    (Order, '{"id": "1"}'),
    (Order, '{"id": true}'),
    (Order, "{}"),
    (Order, "[]"),
    (Order, '{"id": 1, "kind": "other"}'),
    (Order, '{"id": 1, "colour": "blue"}'),
    (Order, '{"id": 1, "extra": {"a": [1]}}'),
    (Order, '{"id": 1, "lines": [{"amount": 1}]}'),
    (Mail, '{"copies": []}'),
    (Model, '{"id": 1}'),
    (int, '"x"'),
    (None, "no JSON"),
]


@pytest.mark.parametrize(("kind", "payload"), BAD)
def test_bad_payloads(kind: Any, payload: str) -> None:
    with pytest.raises((TypeError, ValueError)):
        codec_for(kind).decode(payload)


class Later(Order):
    """A subclass is one, too."""


WRONG: list[tuple[Any, Any]] = [
    (Order, {"id": 1}),
    (Order, Line("x")),
    (Order, Order("1")),  # type: ignore[arg-type]
    (Order, Order(True)),
    (Order, Order(1, [Line(2)])),  # type: ignore[arg-type]
    (Order, Order(1, at="2026")),  # type: ignore[arg-type]
    (Order, Order(1, kind="other")),  # type: ignore[arg-type]
    (Order, Order(1, extra={"a": (1,)})),  # type: ignore[dict-item]
    (Mail, {"copies": []}),
    (Mail, {"to": 1}),
    (list[Line], [Line("x"), 7]),
    (Model, {"id": 1, "at": WHEN}),
    (Model, Model.model_construct(id="x", at=WHEN)),
    (pydantic.TypeAdapter(list[Model]), [Model(id=1, at=WHEN), 7]),
    (int, "x"),
]


@pytest.mark.parametrize(("kind", "value"), WRONG)
def test_values_of_another_type_are_not_sent(kind: Any, value: Any) -> None:
    with pytest.raises(TypeError, match="this value is no"):
        codec_for(kind).encode(value)


def test_a_subclass_is_one_too() -> None:
    assert codec_for(Order).decode(codec_for(Order).encode(Later(1))) == Order(1)


async def test_publish_and_enqueue_refuse_them() -> None:
    bad: Any = Order("1")  # type: ignore[arg-type]
    tw = tidewire.connect("ws://localhost:1/ws")
    stream, queue = tw.stream("s", type=Order), tw.queue("q", type=Order)
    calls = [
        stream.publish(bad),
        stream.publish_all([Order(1), bad]),
        queue.enqueue(bad),
        queue.enqueue_all([Order(1), bad]),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="Order"):
            await call
    assert tw.state is None


def test_fields_of_a_later_version() -> None:
    assert codec_for(Line).decode('{"name": "x", "later": 1}') == Line("x")
    assert codec_for(Mail).decode('{"to": "x", "later": 1}') == {"to": "x", "later": 1}


def test_a_value_that_has_no_json() -> None:
    with pytest.raises(TypeError, match="codec"):
        codec_for(list[Line]).encode([object()])
