"""Pauses between attempts: exponential, with full jitter."""

from __future__ import annotations

import random

LONGEST = 20.0
FIRST = 0.25


def pause(attempt: int) -> float:
    """A random time before attempt n, counted from 0."""
    return random.uniform(0, min(LONGEST, FIRST * 2 ** min(attempt, 16)))


def conflict_pause(attempt: int) -> float:
    """A random pause, so that those who decide at the same time part."""
    return random.uniform(0, 0.010 * 2 ** min(attempt, 16))
