"""The client for programs without asyncio: scripts, Django, notebooks."""

from __future__ import annotations


def connect_sync() -> None:
    """Later in this file."""
