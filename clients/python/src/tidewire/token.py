"""The token of a connection: fixed, or from a callback."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

#: Gets a token. It is told whether the server has refused the one before. It may raise:
#: the attempt has failed then, and the next one follows, as if it returned no text or an
#: empty one. `SignedOut` ends the client.
TokenCallback = Callable[[bool], Awaitable[str]]


class Tokens:
    """Asks for tokens, and remembers if the last one was refused."""

    def __init__(self, token: str | TokenCallback | None) -> None:
        self._token = token
        self.refused = False

    @property
    def renewable(self) -> bool:
        """Whether there can be another token."""
        return callable(self._token)

    async def get(self) -> str | None:
        """The token for the next attempt."""
        if not callable(self._token):
            return self._token
        refused, self.refused = self.refused, False
        try:
            token: object = await self._token(refused)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise ConnectionError("the token callback was cancelled") from error
        if not isinstance(token, str) or not token:
            raise ConnectionError(f"the token callback has returned no token, but {token!r}")
        return token
