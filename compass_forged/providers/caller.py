"""One caller for every operation: joins a request to credential, budget gate and transport, and judges the answer.

The rules, in the order in which they matter:

* a write is never repeated once a byte of it may have gone out and its answer is not definite;
* ``guard.sending`` is awaited once a write, right before its first byte;
* after a yes to a write that is about something else, none goes out for a while (``proving``);
* a read is tried at most three times, within the caller's deadline;
* identical reads share one request (``flights``), and what the forge marked is asked about and not for (``etags``);
* a redirect is followed by hand: a read within its origin, a write only into a repository that the call may touch.
"""

import random
from collections.abc import Awaitable, Callable, Generator, Hashable
from contextlib import contextmanager
from functools import partial
from typing import Final

import msgspec
import trio

from compass_forged.budget import Kind
from compass_forged.errors import (
    BadAnswer,
    BadCredentials,
    ForeignAnswer,
    ForgeError,
    ForgeStatus,
    ForgeUnavailable,
    RateLimited,
)
from compass_forged.observability import get_logger
from compass_forged.ports import CallContext
from compass_forged.providers.credentials import Credential
from compass_forged.providers.dialect import Dialect
from compass_forged.providers.doubt import Doubt
from compass_forged.providers.etags import AnswerCache, confirmed, tag_of
from compass_forged.providers.flights import Flight, FlightFailed, Writes
from compass_forged.providers.forge_answer import AnswerTooLarge, ForgeAnswer
from compass_forged.providers.gate import Admission, Gate
from compass_forged.providers.http import HttpAnswer, HttpRequest, HttpTransport, OnSending, TransportFailure

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_REQUEST_TIMEOUT = 408
"""Comes from whatever stands before the forge, and says nothing of what the forge did."""
_NOT_MODIFIED = 304
_HIDDEN = frozenset({403, 404})
_RESENT_REDIRECTS = frozenset({307, 308})
REDIRECT_HOPS_MAX: Final = 3
TRIES_MAX: Final = 3
_LOST_MAX: Final = 2
"""After how many shared requests that their leaders left a read is sent by itself."""
_RETRY_SECONDS = 0.25
_LOOK_UP_SECONDS = 5.0

log = get_logger(__name__)


class ForgeHttp:
    """One forge under one credential, as its provider calls it."""

    def __init__(
        self,
        transport: HttpTransport,
        gate: Gate,
        credential: Credential,
        dialect: Dialect,
        *,
        writes: Writes | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Join the parts.

        Args:
            transport: to the forge.
            gate: the credential's.
            credential: what the forge is asked under.
            dialect: how the forge speaks.
            writes: tells of the forge's other credentials, and them of this one; None where there are none.
            jitter: draws from [0, 1) and spreads retries; tests fix it.
        """
        self._transport = transport
        self._gate = gate
        self._credential = credential
        self._doubt: Doubt[HttpAnswer] = Doubt(credential)
        self._dialect = dialect
        self._jitter = jitter
        self._answers = AnswerCache()
        self._check_write: Callable[[], Awaitable[None]] | None = None
        self._writes = writes or Writes()
        self._writes.tell(gate.flights)

    @property
    def gate(self) -> Gate:
        """The credential's gate, for ``statistics``."""
        return self._gate

    @property
    def credential(self) -> Credential:
        """The credential, for ``broken``."""
        return self._credential

    def check_writes(self, check: Callable[[], Awaitable[None]]) -> None:
        """From now on await ``check`` before every write; what it raises keeps the write from being sent."""
        self._check_write = check

    async def read(self, request: HttpRequest, context: CallContext, *, kind: Kind = "read") -> ForgeAnswer:
        """Send a read, follow its redirects, and try again what may pass.

        Raises:
            ForgeError: one of its kinds; their ``outcome`` is of no consequence.
        """
        answer = await self._read_here(request, context, kind)
        hops = 0
        while answer.status in REDIRECTS:
            if request.json is not None:
                raise ForgeStatus(answer.status, "the forge redirected a query, which has no other place")
            hops += 1
            if hops > REDIRECT_HOPS_MAX:
                raise ForgeStatus(answer.status, f"the forge redirected more than {REDIRECT_HOPS_MAX} times")
            request = self._redirected(request, answer)
            answer = await self._read_here(request, context, kind)
        return ForgeAnswer(answer.status, answer.headers, answer.body, moved=hops > 0)

    async def write(self, request: HttpRequest, context: CallContext) -> ForgeAnswer:
        """Send a write. Only what definitely did not reach the forge is tried again.

        Raises:
            ForgeError: one of its kinds, with the true ``outcome``.
        """
        if self._check_write is not None:
            await self._check_write()
        answer = await self._write_once(request, context)
        moved_to = ""
        if answer.status in REDIRECTS:
            moved_to = await self._new_place(answer, context)
            resent = answer.status in _RESENT_REDIRECTS and self._leads_to_same(request, answer)
            if not resent or not _may_touch(context, moved_to):
                raise ForgeStatus(answer.status, "the repository or artifact has moved", moved_to=moved_to)
            try:
                answer = await self._write_once(self._dialect.moved(request, moved_to), context)
            except ForgeError as error:
                if error.outcome == "not_sent":
                    error.outcome = "rejected"  # the first request reached the forge, which only sent it elsewhere
                raise
        if answer.status in REDIRECTS:
            raise ForgeStatus(answer.status, "the repository or artifact has moved more than once")
        return ForgeAnswer(answer.status, answer.headers, answer.body, moved_to=moved_to)

    @contextmanager
    def proving(self) -> Generator[None, None, None]:
        """Around the translation of a write's answer: one that is about something else pauses the credential's writes.

        Reads go on: each is judged by itself and leaves nothing behind, and they tell what became of the write.
        """
        try:
            yield
        except ForeignAnswer as error:
            self._gate.mistaken(str(error))
            raise
        self._gate.proved()

    async def ask(self, request: HttpRequest, context: CallContext) -> HttpAnswer:
        """Send one read as it is, once, and hand back whatever is answered: for finding out what a credential may do.

        Raises:
            ForgeUnavailable, RateLimited, BadCredentials: there is no answer to show.
        """
        return await self._authorised(request, context, "read", None)

    # --- reads --------------------------------------------------------------------------------------------------

    async def _read_here(self, request: HttpRequest, context: CallContext, kind: Kind) -> HttpAnswer:
        for attempt in range(1, TRIES_MAX):
            try:
                return self._checked_read(await self._read_once(request, context, kind))
            except ForgeUnavailable:
                pause = self._pause(attempt, context)
                if pause is None:
                    raise
            await trio.sleep(pause)
        return self._checked_read(await self._read_once(request, context, kind))

    async def _read_once(self, request: HttpRequest, context: CallContext, kind: Kind) -> HttpAnswer:
        """The answer to one request: an own one, or that of somebody who asks the same under this credential."""
        for _ in range(_LOST_MAX):
            token = await self._credential.token()
            turn = await self._gate.admit_or_board(
                context.container, kind, (kind, *_question(request)), deadline=context.deadline
            )
            if not isinstance(turn, Flight):
                return await self._lead(turn, request, context, kind, token)
            try:
                answer: HttpAnswer | None = await turn.arrival()
            except FlightFailed as failure:
                raise ForgeUnavailable(failure.why, outcome="unknown") from None
            if answer is not None:
                return answer
        # Whoever leads and leaves, again and again, does not keep the others from an answer.
        token = await self._credential.token()
        return await self._lead(
            await self._gate.admit(context.container, kind, deadline=context.deadline), request, context, kind, token
        )

    async def _lead(
        self, admission: Admission, request: HttpRequest, context: CallContext, kind: Kind, token: str
    ) -> HttpAnswer:
        flight = admission.flight or Flight[HttpAnswer](None)
        try:
            answer = await self._authorised(request, context, kind, None, token, admission)
        except ForgeUnavailable as error:
            flight.fail(str(error))
            raise
        else:
            flight.land(answer)
            return answer
        finally:
            self._gate.flights.close(flight)

    def _checked_read(self, answer: HttpAnswer) -> HttpAnswer:
        self._raise_refusal(answer)
        if answer.too_large:
            raise AnswerTooLarge(answer.status, answer.flaw)
        if answer.flaw and answer.status not in REDIRECTS:
            raise ForgeUnavailable(answer.flaw, outcome="unknown")
        return answer

    def _redirected(self, request: HttpRequest, answer: HttpAnswer) -> HttpRequest:
        location = answer.headers.get("location", "")
        place = self._transport.base.locate(location) if location else None
        if place is None:
            where = "to another host" if location else "without naming the new place"
            raise ForgeStatus(answer.status, f"the forge redirected {where}")
        path, query = place
        return HttpRequest(request.method, path, query)

    # --- writes -------------------------------------------------------------------------------------------------

    async def _write_once(self, request: HttpRequest, context: CallContext) -> HttpAnswer:
        try:
            return await self._written(request, context)
        finally:
            self._writes.ended()  # whatever became of it

    async def _written(self, request: HttpRequest, context: CallContext) -> HttpAnswer:
        async def sending() -> None:
            self._gate.check_writes()
            if not context.guard.sent:
                await context.guard.sending()

        for attempt in range(1, TRIES_MAX):
            try:
                return self._checked_write(await self._authorised(request, context, "write", sending))
            except ForgeUnavailable as error:
                pause = self._pause(attempt, context)
                if error.outcome != "not_sent" or pause is None:
                    raise
            await trio.sleep(pause)
        return self._checked_write(await self._authorised(request, context, "write", sending))

    def _checked_write(self, answer: HttpAnswer) -> HttpAnswer:
        self._raise_refusal(answer)
        if answer.flaw and answer.status not in REDIRECTS:
            raise BadAnswer(answer.status, answer.flaw)
        return answer

    async def _new_place(self, answer: HttpAnswer, context: CallContext) -> str:
        """The canonical name of the repository that a write was redirected to; "" where it cannot be learned."""
        location = answer.headers.get("location", "")
        place = self._transport.base.locate(location) if location else None
        request = None if place is None else self._dialect.place_request(place[0])
        if request is None:
            return ""
        with trio.move_on_after(_LOOK_UP_SECONDS):
            try:
                found = await self.read(request, context)
            except ForgeError as error:
                log.warning("the new place of a moved repository cannot be read", why=type(error).__name__)
            else:
                return self._dialect.place_name(HttpAnswer(found.status, found.headers, found.body))
        return ""

    def _leads_to_same(self, request: HttpRequest, answer: HttpAnswer) -> bool:
        place = self._transport.base.locate(answer.headers.get("location", ""))
        return place is not None and self._dialect.leads_to_same(request, place[0])

    def _raise_refusal(self, answer: HttpAnswer) -> None:
        refusal = None if answer.status in REDIRECTS else self._dialect.refusal(answer)
        if refusal is not None:
            if isinstance(refusal, ForgeStatus) and refusal.status in _HIDDEN:  # the agent is told neither of the two
                log.warning(
                    "the forge refuses",
                    gate=self._gate.statistics().name,
                    status=refusal.status,
                    why=str(refusal),
                    **self._dialect.wanted(answer),
                )
            try:
                raise refusal
            finally:
                # An error that a frame of its own traceback holds is a cycle, and with it stays what the call held.
                del refusal

    # --- one request --------------------------------------------------------------------------------------------

    def _pause(self, attempt: int, context: CallContext) -> float | None:
        """How long to wait before the next try; None if the deadline comes first: then the failure stands."""
        delay = _RETRY_SECONDS * 2.0 ** (attempt - 1) * (0.5 + self._jitter())
        ends = min(context.deadline, trio.current_effective_deadline())
        return None if trio.current_time() + delay >= ends else delay

    async def _authorised(
        self,
        request: HttpRequest,
        context: CallContext,
        kind: Kind,
        sending: OnSending | None,
        token: str | None = None,
        admission: Admission | None = None,
    ) -> HttpAnswer:
        """One exchange; where the forge refuses the token, once more with the token read anew.

        That is safe for a write too: a refused credential is a definite no.
        """
        if token is None:
            token = await self._credential.token()
        admission, token = await self._admitted(context, kind, token, admission)
        answer = await self._exchange(request, context, kind, sending, token, admission)
        if not self._dialect.refuses_credential(answer):
            return answer
        try:
            again = partial(self._exchange, request, context, kind, sending)
            return await self._doubt.resolve(token, partial(self._accepted, again))
        except ForgeError as error:
            if error.outcome == "not_sent":
                error.outcome = (
                    "rejected"  # of the call as a whole: its first request reached the forge, and was refused
                )
            raise

    async def _admitted(
        self, context: CallContext, kind: Kind, token: str, admission: Admission | None
    ) -> tuple[Admission, str]:
        """Leave to send, and what: while the call waited, the token that it had may have been replaced or refused.

        Raises:
            BadCredentials: the role has been broken meanwhile. Nothing was sent.
        """
        while True:
            if admission is None:
                admission = await self._gate.admit(context.container, kind, deadline=context.deadline)
            try:
                current = self._credential.current(token)
            except BadCredentials:
                admission.settle(sent=False)
                raise
            if not self._doubt.is_about(current):
                return admission, current
            admission.settle(sent=False)  # whoever finds out about the token needs the room
            admission = None
            await self._doubt.over()
            token = await self._credential.token()

    async def _accepted(self, send: Callable[[str], Awaitable[HttpAnswer]], token: str) -> HttpAnswer:
        answer = await send(token)
        if self._dialect.refuses_credential(answer):
            self._credential.refuse(token)
            raise BadCredentials(self._credential.role, f"the forge answered {answer.status}")
        return answer

    async def _exchange(
        self,
        request: HttpRequest,
        context: CallContext,
        kind: Kind,
        sending: OnSending | None,
        token: str,
        admission: Admission | None = None,
    ) -> HttpAnswer:
        key = None if kind == "write" else _question(request)
        if admission is None:
            admission = await self._gate.admit(context.container, kind, deadline=context.deadline)
        known = None if key is None else self._answers.find(key, token)
        condition = {} if known is None else {"If-None-Match": tag_of(known)}
        try:
            context.forge_requests += 1
            answer = await self._transport.exchange(
                request,
                headers={**self._dialect.headers, **condition},
                authorization=self._dialect.authorization(token),
                on_sending=sending,
            )
            self._feed(answer, admission)
        except TransportFailure as error:
            admission.settle(sent=error.sent)
            raise ForgeUnavailable(error.why, outcome="unknown" if error.sent else "not_sent") from error
        finally:  # cancelled: a write that had not gone out is given back
            admission.settle(sent=kind != "write" or context.guard.sent)
        if known is not None and answer.status == _NOT_MODIFIED:
            answer = confirmed(known, answer)
        if key is not None:
            self._answers.keep(key, token, answer)
        return answer

    def _feed(self, answer: HttpAnswer, admission: Admission) -> None:
        """Tell the gate what the answer says of limits.

        Raises:
            RateLimited: it is a refusal for one.
        """
        limit = self._dialect.limit(answer)
        delay = 0.0
        if limit is not None:  # before the request is settled: its end lets the next one go
            if limit.kind == "primary" and limit.delay is not None:
                delay = self._gate.exhausted(limit.resource, limit.delay)
            else:
                delay = self._gate.throttled(limit.delay, f"status {answer.status}")
        refused = 400 <= answer.status < 500 and answer.status != _REQUEST_TIMEOUT  # noqa: PLR2004 -- the 4xx class
        admission.settle(reading=self._dialect.reading(answer), created=not refused)
        if limit is not None:
            raise RateLimited(delay, f"the forge's {limit.kind} rate limit is reached", outcome="rejected")


def _question(request: HttpRequest) -> tuple[Hashable, ...]:
    """What a read asks for. Where everything has one path, what differs stands in the body."""
    body = None if request.json is None else msgspec.json.encode(request.json)
    return request.path, request.query, body


def _may_touch(context: CallContext, repo: str) -> bool:
    return bool(repo) and context.may_touch is not None and context.may_touch(repo)
