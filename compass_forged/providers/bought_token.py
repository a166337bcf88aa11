"""A token that is bought from the forge for a while, under a credential that does not itself speak for anybody.

What is common to ``github_app`` and ``linear_oauth``: who asks for the next one and when, how long a failure is left
alone, and what a failure means. What is asked, and under which claim, is theirs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

import trio

from compass_forged.errors import BadCredentials, ConfigError, ForgeError, ForgeUnavailable, RateLimited
from compass_forged.observability import get_logger
from compass_forged.ports import Role
from compass_forged.providers.dialect import Dialect
from compass_forged.providers.http import HttpAnswer, HttpRequest, HttpTransport, TransportFailure
from compass_forged.providers.tokens import RecentTokens, Secret

LIFE_MIN_SECONDS: Final = 60.0
BACK_OFF_FIRST_SECONDS: Final = 1.0
BACK_OFF_MAX_SECONDS: Final = 60.0
_ASK_SECONDS: Final = 10.0

log = get_logger(__name__)


class BoughtToken(ABC):
    """The current token, bought anew before it ends, by one caller at a time.

    A purchase that fails backs off, and meanwhile whoever asks gets the old token while it lives, or the failure. While
    it lives, nobody waits for another caller's purchase, and neither a forge that does not answer nor a key or secret
    that has become useless keeps it from anybody.
    """

    def __init__(
        self,
        what: str,
        *,
        early_seconds: float,
        life_max_seconds: float,
        role: Role,
        transport: HttpTransport,
        dialect: Dialect,
        jitter: Callable[[], float],
    ) -> None:
        """Ask nothing yet.

        Args:
            what: how errors and logs name the token.
            early_seconds: how long before its end it is renewed; half of its life if that is later.
            life_max_seconds: a longer life is not believed.
            role: for errors.
            transport: to the forge.
            dialect: how the forge speaks.
            jitter: draws from [0, 1) and spreads what is tried again; tests fix it.
        """
        self._what = what
        self._none_could_be_had = f"no {what} could be had"
        self._early_seconds = early_seconds
        self._life_max_seconds = life_max_seconds
        self._role: Role = role
        self._transport = transport
        self._dialect = dialect
        self._jitter = jitter
        self._lock = trio.Lock()
        self._recent = RecentTokens()
        self._secret: Secret | None = None
        self._renew_at = 0.0
        self._ends_at = 0.0
        self._failures = 0
        self._failure: ForgeError | None = None
        self._failed_until = 0.0

    async def token(self) -> str:
        """The current token; a checkpoint only where one is asked for.

        Raises:
            ConfigError: what it is bought with cannot be used.
            BadCredentials: the forge refuses that.
            RateLimited, ForgeUnavailable: no token could be had now. The call that needs it was not sent.
        """
        if self._secret is not None and self._will_do(trio.current_time()):
            return self._secret.reveal()
        async with self._lock:
            now = trio.current_time()
            if self._secret is None or now >= self._renew_at:
                await self._renew(now)
            if self._secret is None:  # or a call would go out with nothing
                raise ForgeUnavailable(self._none_could_be_had, outcome="not_sent")
            return self._secret.reveal()

    def invalidate(self) -> None:
        """The token was refused: the next use buys another one."""
        self._secret = None

    @abstractmethod
    def check(self) -> None:
        """Find now what would stand in the way of every call.

        Raises:
            ConfigError: as ``token``.
        """

    @abstractmethod
    async def _buy(self) -> None:
        """Buy a token and ``_keep`` it.

        Raises:
            ConfigError, ForgeError: as ``token``.
        """

    @abstractmethod
    def _refused(self, status: int) -> ForgeError:
        """What an answer of this status, which is no success and no limit, means."""

    def _will_do(self, now: float) -> bool:
        """Whether nobody need wait for another token than the one at hand."""
        return now < self._renew_at or (now < self._ends_at and self._lock.locked())

    def _lives(self, now: float) -> bool:
        return self._secret is not None and now < self._ends_at

    async def _renew(self, now: float) -> None:
        # What was put off for the sake of a token that lived, without a failure to tell, is not put off any longer.
        if now >= self._failed_until or (self._failure is None and not self._lives(now)):
            try:
                await self._buy()
            except ForgeError as error:
                self._back_off(error)
            except trio.Cancelled:
                if self._lives(now):  # or the next caller would spend its time on a forge that is silent, and the next
                    self._failed_until = trio.current_time() + BACK_OFF_FIRST_SECONDS
                raise
            except ConfigError as error:
                now = trio.current_time()
                if not self._lives(now):
                    raise
                self._failure = None
                self._failed_until = now + BACK_OFF_MAX_SECONDS
                message = "another token cannot be asked for; the one at hand is used while it lives"
                log.warning(message, what=self._what, role=self._role, why=str(error))
        if self._failure is not None and not self._lives(trio.current_time()):  # it may have ended meanwhile
            raise _again(self._failure)

    def _keep(self, secret: Secret, life: float) -> None:
        """From now on this is the token, for ``life`` seconds."""
        life = min(self._life_max_seconds, max(LIFE_MIN_SECONDS, life))
        now = trio.current_time()
        self._secret = secret
        self._ends_at = now + life
        self._renew_at = now + max(life - self._early_seconds, life / 2)
        self._failures = 0
        self._failure = None

    def _back_off(self, error: ForgeError) -> None:
        delay = min(BACK_OFF_MAX_SECONDS, BACK_OFF_FIRST_SECONDS * 2.0**self._failures) * (0.5 + self._jitter())
        if isinstance(error, RateLimited):
            delay = max(delay, error.retry_after_seconds)
        self._failures = min(self._failures + 1, 16)
        self._failure = _again(error)  # the error itself would keep what its call held
        self._failed_until = trio.current_time() + delay
        log.warning(self._none_could_be_had, role=self._role, why=str(error), again_in=round(delay, 1))

    async def _exchange(self, request: HttpRequest, authorization: str) -> HttpAnswer:
        try:
            with trio.fail_after(_ASK_SECONDS):
                return await self._transport.exchange(
                    request, headers=self._dialect.headers, authorization=authorization
                )
        except TransportFailure as error:
            raise ForgeUnavailable(error.why, outcome="not_sent") from error
        except trio.TooSlowError as error:
            raise ForgeUnavailable(
                f"the forge gave no token within {_ASK_SECONDS:.0f} s", outcome="not_sent"
            ) from error

    def _refusal(self, answer: HttpAnswer) -> ForgeError:
        limit = self._dialect.limit(answer)
        if limit is not None:
            return RateLimited(
                limit.delay or BACK_OFF_MAX_SECONDS, "the forge's rate limit is reached", outcome="not_sent"
            )
        return self._refused(answer.status)


def _again(error: ForgeError) -> ForgeError:
    """The same failure for another caller: an exception that is raised twice gathers the callers' tracebacks."""
    match error:
        case BadCredentials():
            return BadCredentials(error.role, error.why, outcome="not_sent")
        case RateLimited():
            return RateLimited(error.retry_after_seconds, str(error), outcome="not_sent")
        case _:
            return ForgeUnavailable(str(error), outcome="not_sent")
