from functools import partial

import pytest
import trio
import trio.testing

from compass_forged.errors import BadAnswer, BadCredentials, ForgeError, ForgeStatus, ForgeUnavailable, RateLimited
from compass_forged.providers.together import together

NO = ForgeStatus(404, "no")
LATER = RateLimited(1.0, "later", outcome="rejected")
DOWN = ForgeUnavailable("down", outcome="unknown")
ODD = BadAnswer(200, "odd")
KEY = BadCredentials("author", "why")
BUG = KeyError("bug")
OTHER = ForgeError("other")


async def fail(error: BaseException) -> None:
    with trio.CancelScope(shield=True):  # so that the first of several does not keep the others from failing
        await trio.lowlevel.checkpoint()
    raise error


async def fail_when_cancelled(error: BaseException) -> None:
    try:
        await trio.sleep_forever()
    finally:
        raise error


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        ([NO], NO),
        ([ODD, NO], NO),
        ([DOWN, LATER], LATER),
        ([LATER, KEY], KEY),
        ([NO, DOWN], NO),
        ([DOWN, ODD], DOWN),
        ([OTHER, ODD], ODD),
        ([KEY, BUG], BUG),
    ],
)
async def test_of_several_the_one_that_says_most_is_raised_as_itself(errors: list[Exception], told: Exception) -> None:
    for given in (errors, errors[::-1]):
        with pytest.raises(type(told)) as raised:
            await together(*(partial(fail, error) for error in given))
        assert raised.value is told
        assert raised.value.__cause__ is None


async def test_the_cause_stays() -> None:
    async def caused() -> None:
        await trio.lowlevel.checkpoint()
        raise ForgeUnavailable("down", outcome="unknown") from BUG

    with pytest.raises(ForgeUnavailable) as raised:
        await together(caused)
    assert raised.value.__cause__ is BUG


async def test_groups_within_groups_are_taken_apart() -> None:
    async def inner() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail, ODD)
            nursery.start_soon(fail, DOWN)

    with pytest.raises(ForgeUnavailable):
        await together(inner, partial(trio.sleep, 0))


async def test_the_first_that_fails_ends_the_others(autojump_clock: trio.testing.MockClock) -> None:
    began = trio.current_time()
    with pytest.raises(ForgeStatus):
        await together(partial(fail, NO), partial(trio.sleep, 60))
    assert trio.current_time() == began


async def test_a_caller_that_gives_up_is_not_answered(autojump_clock: trio.testing.MockClock) -> None:
    with trio.move_on_after(1) as scope:
        await together(partial(trio.sleep, 60), partial(fail_when_cancelled, NO))
    assert scope.cancelled_caught
    with trio.move_on_after(1), pytest.raises(KeyError):
        await together(partial(trio.sleep, 60), partial(fail_when_cancelled, BUG))


async def test_nothing_to_do_and_all_done() -> None:
    done: list[int] = []

    async def job(number: int) -> None:
        await trio.lowlevel.checkpoint()
        done.append(number)

    await together()
    await together(partial(job, 1), partial(job, 2))
    assert sorted(done) == [1, 2]
