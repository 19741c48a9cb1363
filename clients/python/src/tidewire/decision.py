"""Decisions: read, decide, and append if nothing has changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from . import errors
from .backoff import conflict_pause
from .events import Appended, Condition, Event, Events, Reader
from .query import Query


class Decision:
    """One turn of a decision. The folds are its attributes."""

    def __init__(self, events: Events, condition: Condition, last: bool, folds: dict[str, Any]):
        self._events = events
        self._condition = condition
        self._last = last
        self._folds = folds
        self.conflict = False

    def __getattr__(self, name: str) -> Any:
        try:
            return self._folds[name]
        except KeyError:
            raise AttributeError(f"the decision has no fold {name!r}") from None

    async def append(self, *events: Event) -> Appended | None:
        """Appends if nothing has changed. None: something has, and the next turn follows."""
        try:
            return await self._events.append(*events, condition=self._condition)
        except errors.Conflict:
            if self._last:
                raise
            self.conflict = True
            return None


async def turns(
    events: Events, attempts: int, folds: dict[str, tuple[Query, Any, Callable[[Any, Event], Any]]]
) -> AsyncIterator[Decision]:
    """The turns of a decision, until one is stored or appends nothing."""
    queries = [query for query, _, _ in folds.values()]
    union = queries[0]
    for query in queries[1:]:
        union = union | query
    for attempt in range(attempts):
        state = {name: init for name, (_, init, _) in folds.items()}
        reader = Reader(events, union)
        async for event in reader:
            for name, (query, _, function) in folds.items():
                if query.matches(event):
                    state[name] = function(state[name], event)
        condition = Condition(union, reader.position)
        turn = Decision(events, condition, attempt + 1 >= attempts, state)
        yield turn
        if not turn.conflict:
            return
        await asyncio.sleep(conflict_pause(attempt))
