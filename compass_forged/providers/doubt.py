"""A token that the forge has refused once, and of which nobody knows yet whether it will again.

Too many refused tokens have a forge refuse valid ones too. So one call alone tries such a token again, if its source
has no other one, and whoever else was about to send it waits for what that call finds.
"""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import trio

from compass_forged.errors import BadCredentials
from compass_forged.providers.credentials import Credential
from compass_forged.providers.tokens import Secret

T = TypeVar("T")


class Doubt(Generic[T]):
    """What is not known of one credential's token. ``T`` is what sending it gives."""

    def __init__(self, credential: Credential) -> None:
        self._credential = credential
        self._trial = trio.Lock()
        self._token: Secret | None = None
        self._over = trio.Event()

    def is_about(self, token: str) -> bool:
        """Whether ``token`` has been refused once, and nobody knows more."""
        return self._token is not None and self._token.reveal() == token

    async def over(self) -> None:
        """Wait until the token is in doubt no longer."""
        await self._over.wait()  # bounded by the call's own deadline

    async def resolve(self, refused: str, send: Callable[[str], Awaitable[T]]) -> T:
        """What ``send`` gives with the token read anew, after the forge refused ``refused``.

        Raises:
            BadCredentials: ``send`` says that it is refused again, or another call has found that it is.
        """
        over = self._begin(refused)
        decided = False
        try:
            async with self._trial:
                token = self._credential.current(refused)
                if not over.is_set():  # or another call has found out, and the source need not be asked for each
                    token = await self._credential.renewed(refused)
                    if self.is_about(token):
                        found = await send(token)
                        decided = True
                        return found
            decided = True
        except BadCredentials:
            decided = True
            raise
        finally:
            if (decided and over is self._over) or not self._trial.locked():  # or nobody else is there to find out
                self._end()
        return await send(token)

    def _begin(self, refused: str) -> trio.Event:
        """What tells that the doubt about ``refused`` is over; never, while there is one about another token."""
        if self._token is None:
            self._token, self._over = Secret(refused), trio.Event()
        return self._over if self.is_about(refused) else trio.Event()

    def _end(self) -> None:
        self._token = None
        self._over.set()
