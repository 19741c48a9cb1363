"""Codecs: how a value of the program becomes the payload of a message."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable
from datetime import date, datetime
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from .wire import encode_json

T = TypeVar("T")


class Codec(Protocol[T]):
    """Turns values into payloads and back. Each raises whatever it likes for a bad one."""

    def encode(self, value: T, /) -> str | bytes:
        """The payload of a value."""

    def decode(self, payload: str | bytes, /) -> T:
        """The value of a payload."""


class _Plain:
    """JSON without a type: dictionaries, lists, texts and numbers."""

    def encode(self, value: Any, /) -> str:
        return encode_json(value)

    def decode(self, payload: str | bytes, /) -> Any:
        return json.loads(payload)


class _Text:
    """The payload is the text."""

    def encode(self, value: str, /) -> str:
        return value

    def decode(self, payload: str | bytes, /) -> str:
        return payload if isinstance(payload, str) else payload.decode()


class _Binary:
    """The payload is the bytes."""

    def encode(self, value: bytes, /) -> bytes:
        return bytes(value)

    def decode(self, payload: str | bytes, /) -> bytes:
        return payload if isinstance(payload, bytes) else payload.encode()


class _Typed(Generic[T]):
    """JSON of a dataclass, a TypedDict, or any type made of these.

    `encode` reads what it has written, so that nothing goes out that `decode` refuses.
    """

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._class: Any = kind if dataclasses.is_dataclass(kind) else object
        self._build = _builder(kind)

    def encode(self, value: T, /) -> str:
        if not isinstance(value, self._class):
            raise _wrong(self._kind, f"it is a {type(value).__name__}")
        payload = _typed_json(value)
        try:
            self._build(json.loads(payload))
        except (TypeError, ValueError) as error:
            raise _wrong(self._kind, error) from error
        return payload

    def decode(self, payload: str | bytes, /) -> T:
        return typing.cast(T, self._build(json.loads(payload)))


class _Pydantic(Generic[T]):
    """JSON by a model of pydantic, or by one of its TypeAdapters."""

    def __init__(self, adapter: Any, kind: Any) -> None:
        self._adapter = adapter
        self._kind = kind

    def encode(self, value: T, /) -> str:
        try:
            payload: bytes = self._adapter.dump_json(value, warnings="error")
        except ValueError as error:
            raise _wrong(self._kind, error) from error
        return payload.decode()

    def decode(self, payload: str | bytes, /) -> T:
        return typing.cast(T, self._adapter.validate_json(payload))


json_codec: Codec[Any] = _Plain()
text: Codec[str] = _Text()
binary: Codec[bytes] = _Binary()


def codec_for(kind: Any) -> Codec[Any]:
    """The codec of a type: JSON, unless it is a codec itself."""
    if kind is None:
        return json_codec
    if isinstance(kind, type):
        if hasattr(kind, "__pydantic_validator__") or hasattr(kind, "__pydantic_fields__"):
            from pydantic import TypeAdapter

            return _Pydantic(TypeAdapter(kind), kind)
    elif hasattr(kind, "validate_json"):
        return _Pydantic(kind, kind)
    elif hasattr(kind, "encode") and hasattr(kind, "decode"):
        return typing.cast(Codec[Any], kind)
    return _Typed(kind)


def _wrong(kind: Any, reason: object) -> TypeError:
    return TypeError(f"this value is no {getattr(kind, '__name__', kind)}: {reason}")


def _default(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no JSON: give the stream or queue a codec")


_typed_json = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_default
).encode

Build = Callable[[Any], Any]


def _builder(kind: Any) -> Build:
    """A function that makes a value of this type from JSON, or raises."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or isinstance(kind, TypeVar):
        return _same
    if dataclasses.is_dataclass(kind):
        return _DataclassBuilder(kind)
    if typing.is_typeddict(kind):
        return _TypedDictBuilder(kind)
    if origin in (typing.Union, types.UnionType):
        return _union([_builder(arg) for arg in args])
    if origin is typing.Literal:
        return _literal(args)
    if origin in (typing.Required, typing.NotRequired, typing.Annotated):
        return _builder(args[0])
    if origin is tuple or origin in (list, set, frozenset):
        return _sequence(origin, args)
    if origin is dict:
        return _mapping(_builder(args[1]))
    return _scalar(kind)


def _same(value: Any) -> Any:
    return value


def _scalar(kind: Any) -> Build:
    if kind is None or kind is type(None):
        return _literal((None,))
    if kind in (datetime, date):
        return typing.cast(Build, kind.fromisoformat)
    if isinstance(kind, type) and issubclass(kind, (Enum, UUID)):
        return kind
    if kind in (set, frozenset, tuple):
        return typing.cast(Build, kind)

    def build(value: Any) -> Any:
        if kind is float and type(value) is int:
            return float(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise TypeError(f"want {kind.__name__}, got {type(value).__name__}")
        return value

    return build


def _literal(values: tuple[Any, ...]) -> Build:
    def build(value: Any) -> Any:
        if value not in values:
            raise ValueError(f"want one of {values}, got {value!r}")
        return value

    return build


def _union(builds: list[Build]) -> Build:
    def build(value: Any) -> Any:
        reasons = []
        for one in builds:
            try:
                return one(value)
            except (TypeError, ValueError) as error:
                reasons.append(str(error))
        raise ValueError("; ".join(reasons))

    return build


def _sequence(origin: Any, args: tuple[Any, ...]) -> Build:
    each = _builder(args[0])
    fixed = origin is tuple and args[-1] is not Ellipsis
    builds = [_builder(arg) for arg in args] if fixed else []

    def build(value: Any) -> Any:
        if not isinstance(value, list):
            raise TypeError(f"want a list, got {type(value).__name__}")
        if fixed:
            return tuple(one(item) for one, item in zip(builds, value, strict=True))
        return origin(each(item) for item in value)

    return build


def _mapping(each: Build) -> Build:
    def build(value: Any) -> Any:
        if not isinstance(value, dict):
            raise TypeError(f"want an object, got {type(value).__name__}")
        return {name: each(item) for name, item in value.items()}

    return build


class _DataclassBuilder:
    """Ignores fields that the class does not have: a later version may send them."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._fields: dict[str, Build] | None = None

    def __call__(self, value: Any) -> Any:
        if self._fields is None:  # so late, since a class may name itself
            hints = typing.get_type_hints(self._kind)
            own = [f.name for f in dataclasses.fields(self._kind) if f.init]
            self._fields = {name: _builder(hints[name]) for name in own}
        if not isinstance(value, dict):
            raise TypeError(f"want an object, got {type(value).__name__}")
        fields = self._fields
        return self._kind(**{n: fields[n](item) for n, item in value.items() if n in fields})


class _TypedDictBuilder:
    """Keeps fields that the type does not name, and wants those that it requires."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._required: set[str] = set()
        self._fields: dict[str, Build] | None = None

    def __call__(self, value: Any) -> Any:
        if self._fields is None:
            hints = typing.get_type_hints(self._kind, include_extras=True)
            self._required = {name for name, hint in hints.items() if self._requires(name, hint)}
            self._fields = {name: _builder(hint) for name, hint in hints.items()}
        if not isinstance(value, dict):
            raise TypeError(f"want an object, got {type(value).__name__}")
        missing = self._required - value.keys()
        if missing:
            raise ValueError(f"without {', '.join(sorted(missing))}")
        fields = self._fields
        return {n: fields[n](item) if n in fields else item for n, item in value.items()}

    def _requires(self, name: str, hint: Any) -> bool:
        """The type's own `__required_keys__` does not see through annotations that are texts."""
        origin = typing.get_origin(hint)
        if origin in (typing.Required, typing.NotRequired):
            return origin is typing.Required
        return name in self._kind.__required_keys__
