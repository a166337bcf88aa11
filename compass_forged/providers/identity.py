"""Who the credentials of a forge are: learned from the forge, kept true when a token changes, and never taken as given.

A forge refuses that an account reviews what it wrote itself. Author and reviewer must therefore be two accounts, and
until both are known to be, no review is sent.
"""

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import trio

from compass_forged.errors import CallError, ConfigError, ForgeError, ForgeUnavailable
from compass_forged.observability import get_logger
from compass_forged.ports import CallContext, Role
from compass_forged.providers.credentials import Credential

LEARN_SECONDS: Final = 10.0
"""How long one look at the forge may take."""
_ASKED_AGAIN_SECONDS: Final = 2.0
"""How long after an attempt a review does not make another one."""
_AGAIN_FIRST_SECONDS: Final = 5.0
_AGAIN_MAX_SECONDS: Final = 300.0

_MEND: Final = "a forge refuses that an account reviews its own work: configure another account as reviewer, or none"
_SAME: Final = f"author and reviewer are configured as the same account, and {_MEND}"
_NAMELESS: Final = (
    "author and reviewer are tokens of Apps that the forge names to nobody; an operator must configure them by app_id, "
    "installation_id and key_file"
)

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Identity:
    """An account at a forge.

    Attributes:
        kind: ``user``; ``app`` for a GitHub App that was told by its key; ``installation`` for an App of which only
            the token is known, which the forge names to nobody.
        id: the user's, or the App's; 0 for an ``installation``.
        login: what stands under the account's writings; "" for an ``installation``.
    """

    kind: Literal["user", "app", "installation"]
    id: int
    login: str

    def __str__(self) -> str:
        return self.login or "an App's installation"

    def is_other_than(self, other: "Identity") -> bool | None:
        """Whether the two are different accounts; None where that cannot be told.

        Two installations of one App write as one account.
        """
        if "installation" in {self.kind, other.kind}:
            return True if "user" in {self.kind, other.kind} else None
        return (self.kind, self.id) != (other.kind, other.id)


class _Reading:
    """The guard of a read: nothing goes out that could not be taken back."""

    sent = False

    async def sending(self) -> None:
        """Never called: a read has no such moment."""


def own_context() -> CallContext:
    """The context of a read that the daemon makes on its own behalf."""
    return CallContext(container="", guard=_Reading())


Learn: TypeAlias = Callable[[], Awaitable[Identity]]
"""Asks the forge; raises ``ForgeError`` or ``ConfigError``."""


class RoleIdentity:
    """Who one credential is, as far as it is known."""

    def __init__(self, credential: Credential, learn: Learn, *, lasting: bool = False) -> None:
        """``learn`` asks the forge under ``credential``; ``lasting``: another token is the same account's."""
        self.credential = credential
        self._learn = learn
        self._lasting = lasting
        self._known: Identity | None = None
        self._known_at = -1
        self._doubted = False

    @property
    def is_settled(self) -> bool:
        """Whether the account is known and nothing speaks against it."""
        return self.known is not None and not self._doubted

    def ask_again(self) -> None:
        """Something was written under another name. Until the forge has been asked again, what is known holds."""
        self._doubted = True

    @property
    def known(self) -> Identity | None:
        """The account, or None: not learned yet, or the token has changed since."""
        return self._known if self._lasting or self._known_at == self.credential.changes else None

    async def look_at_token(self) -> None:
        """Have a token that was put in another's place show now, before it is used: its account is not known then.

        Raises:
            ForgeError: as ``Credential.token``.
        """
        if not self._lasting:
            await self.credential.token()

    async def learn(self) -> None:
        """Ask the forge, unless it is settled.

        Raises:
            ForgeError, ConfigError: it cannot be learned now.
        """
        if self.is_settled:
            return
        with trio.move_on_after(LEARN_SECONDS):
            await self.credential.token()
            asked_under = self.credential.changes
            found = await self._learn()
            if found != self._known:
                log.info("a credential's identity is learned", role=self.credential.role, account=str(found))
            self._known, self._known_at = found, asked_under
            self._doubted = False
            return
        raise ForgeUnavailable(f"the forge did not name the account within {LEARN_SECONDS:.0f} s", outcome="not_sent")


class Identities:
    """Who the roles of one forge are."""

    def __init__(self, host: str, author: RoleIdentity, reviewer: RoleIdentity | None = None) -> None:
        """``host`` as in coordinates, for messages."""
        self._host = host
        self.author = author
        self.reviewer = reviewer
        self._lock = trio.Lock()
        self._ask_at = -math.inf

    @property
    def all_known(self) -> bool:
        """Whether nothing is left to learn."""
        return all(role.is_settled for role in self._roles())

    def known(self, role: Role) -> Identity | None:
        """The account of a role, or None where it is not known."""
        found = self.author if role == "author" else self.reviewer
        return None if found is None else found.known

    def ask_again(self, role: Role) -> None:
        """Have the account of a role, which may have been given another name, looked at again by ``keep``."""
        found = self.author if role == "author" else self.reviewer
        if found is not None:
            found.ask_again()

    async def learn(self) -> None:
        """Learn what is not known, side by side. What cannot be learned now is logged.

        Raises:
            ConfigError: author and reviewer are the same account.
        """
        async with self._lock:
            await self._ask()
        if problem := self._sameness():
            raise ConfigError(problem)

    async def keep(self) -> None:
        """Learn, and learn again what a changed token has made unknown; runs until it is cancelled."""
        wait = _AGAIN_FIRST_SECONDS
        told = ""
        while True:
            if not self.all_known:
                problem = await self._learned_problem()
                if problem and problem != told:
                    log.error("reviews are refused", why=problem)
                told = problem
            # A token that changes tells nobody, so the known are looked at too.
            wait = _AGAIN_FIRST_SECONDS if self.all_known else min(_AGAIN_MAX_SECONDS, wait * 2)
            await trio.sleep(wait)

    async def check_reviewer(self) -> None:
        """Find out whether a review may be sent; asks the forge only for what is not known.

        Raises:
            CallError: ``failed_precondition``: author and reviewer are the same account, or cannot be told apart.
            ForgeUnavailable: it cannot be learned now who they are.
            ForgeError: the reviewer's token cannot be had.
        """
        with suppress(ForgeError):  # logged where it arose; what is known of the author holds
            await self.author.look_at_token()
        if self.reviewer is not None:
            await self.reviewer.look_at_token()
        if not self.all_known:
            async with self._lock:  # of many reviews at once the first asks, and the others take what it learned
                await self._ask_if_due()
        author, reviewer = self.known("author"), self.known("reviewer")
        if author is None or reviewer is None:
            raise ForgeUnavailable(
                "it is not known yet which accounts author and reviewer are, as the forge could not be asked",
                outcome="not_sent",
            )
        match author.is_other_than(reviewer):
            case False:
                raise CallError("failed_precondition", _SAME, outcome="not_sent")
            case None:
                raise CallError("failed_precondition", _NAMELESS, outcome="not_sent")
            case True:
                return

    async def _ask_if_due(self) -> None:
        if not self.all_known and trio.current_time() >= self._ask_at:
            await self._ask()

    async def _ask(self) -> None:
        """Learn what is not known, under the lock."""
        async with trio.open_nursery() as nursery:
            for role in self._roles():
                nursery.start_soon(self._learn, role)
        self._ask_at = trio.current_time() + _ASKED_AGAIN_SECONDS

    def _sameness(self) -> str:
        """How an operator is told that the two roles are one account; "" where they are not, as far as is known."""
        author, reviewer = self.known("author"), self.known("reviewer")
        if author is None or reviewer is None or author.is_other_than(reviewer) is not False:
            return ""
        return f"forge {self._host}: author and reviewer are the same account, {author}; {_MEND}"

    async def _learned_problem(self) -> str:
        try:
            await self.learn()
        except ConfigError as error:
            return str(error)
        return ""

    def _roles(self) -> list[RoleIdentity]:
        return [self.author] if self.reviewer is None else [self.author, self.reviewer]

    async def _learn(self, role: RoleIdentity) -> None:
        try:
            await role.learn()
        except (ForgeError, ConfigError) as error:
            log.warning(
                "a credential's identity cannot be learned now",
                forge=self._host,
                role=role.credential.role,
                why=str(error),
            )
