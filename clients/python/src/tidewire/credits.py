"""Credits: how many messages the server may send before the program has taken some."""

from __future__ import annotations

from .link import BrokenServer


class Credits:
    """Counts what the server may send, and grants again when half are used."""

    __slots__ = ("_left", "_used", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self._left = most
        self._used = 0

    def reset(self) -> None:
        """The subscription begins again, with all credits."""
        self._left = self.most
        self._used = 0

    def take(self) -> None:
        """A message has come."""
        self._left -= 1
        if self._left < 0:
            raise BrokenServer(f"the server has sent more than its {self.most} credits allow")

    def use(self, count: int) -> int:
        """The program has taken messages. Returns how many credits to grant now."""
        self._used += count
        if self._used * 2 < self.most:
            return 0
        granted, self._used = self._used, 0
        self._left += granted
        return granted
