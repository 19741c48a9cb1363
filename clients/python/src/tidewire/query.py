"""Queries of events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol


class Matchable(Protocol):
    """What a query looks at."""

    @property
    def type(self) -> str: ...
    @property
    def tags(self) -> Iterable[str]: ...


@dataclass(frozen=True, slots=True)
class Item:
    """An event matches if it has one of the types and all of the tags."""

    of: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def matches(self, event: Matchable) -> bool:
        """Whether an event matches."""
        return (not self.of or event.type in self.of) and set(self.tags) <= set(event.tags)


@dataclass(frozen=True, slots=True)
class Query:
    """An event matches if it matches one of the items; without items, every event does.

    `tagged("course:1").types("Enrolled") | tagged("student:7")`
    """

    items: tuple[Item, ...] = ()

    def types(self, *types: str) -> Query:
        """The same, but only of these types."""
        return Query(tuple(Item(types, item.tags) for item in self.items or (Item(),)))

    def tagged(self, *tags: str) -> Query:
        """The same, but only with these tags too."""
        items = self.items or (Item(),)
        return Query(tuple(Item(item.of, item.tags + tags) for item in items))

    def __or__(self, other: Query) -> Query:
        if not self.items or not other.items:
            return Query()
        return Query(self.items + other.items)

    def matches(self, event: Matchable) -> bool:
        """Whether an event matches."""
        return not self.items or any(item.matches(event) for item in self.items)

    def to_wire(self) -> dict[str, Any]:
        """As the protocol has it."""
        items = []
        for item in self.items:
            fields: dict[str, Any] = {}
            if item.of:
                fields["types"] = list(item.of)
            if item.tags:
                fields["tags"] = list(item.tags)
            items.append(fields)
        return {"items": items} if items else {}


def tagged(*tags: str) -> Query:
    """Events that have all of these tags."""
    return Query((Item((), tags),))


def types(*types: str) -> Query:
    """Events of one of these types."""
    return Query((Item(types),))


def everything() -> Query:
    """All events."""
    return Query()
