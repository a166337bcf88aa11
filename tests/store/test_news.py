import trio
import trio.testing

from compass_forged.ports import SessionNews
from compass_forged.store import news
from compass_forged.store.news import SessionMailbox


async def test_what_comes_while_nobody_reads_is_put_together() -> None:
    box = SessionMailbox()
    assert await box.news() == SessionNews(None)
    box.put("s-1")
    box.put("s-2")
    box.put("s-1")
    assert await box.news() == SessionNews(frozenset({"s-1", "s-2"}))


async def test_all_swallows_names_before_and_after_it() -> None:
    box = SessionMailbox()
    await box.news()
    box.put("s-1")
    box.put_all()
    box.put("s-2")
    assert await box.news() == SessionNews(None)
    box.put("s-3")
    assert await box.news() == SessionNews(frozenset({"s-3"}))


async def test_a_flood_of_names_takes_no_room() -> None:
    box = SessionMailbox()
    await box.news()
    for number in range(news._NAMES_LIMIT + 1):
        box.put(f"s-{number}")
    assert box._names is None
    assert await box.news() == SessionNews(None)


async def test_a_reader_waits_and_a_cancelled_one_loses_nothing() -> None:
    box = SessionMailbox()
    await box.news()
    with trio.move_on_after(0) as scope:
        box.put("s-1")
        await box.news()
    assert scope.cancelled_caught
    async with trio.open_nursery() as nursery:
        assert await box.news() == SessionNews(frozenset({"s-1"}))
        nursery.start_soon(trio.sleep, 0)
        nursery.start_soon(_put, box)
        assert await box.news() == SessionNews(frozenset({"s-2"}))


async def _put(box: SessionMailbox) -> None:
    await trio.testing.wait_all_tasks_blocked()
    box.put("s-2")
