from hypothesis import given
from hypothesis import strategies as st

from compass_forged.store.lanes import FairQueue


def test_lanes_take_turns_and_each_is_first_come_first_served() -> None:
    queue: FairQueue[str] = FairQueue()
    for lane, item in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1"), ("c", "c2")]:
        queue.put(lane, item)
    assert (len(queue), queue.waiting_in("a"), queue.waiting_in("x")) == (6, 3, 0)
    assert [queue.take() for _ in range(7)] == ["a1", "b1", "c1", "a2", "c2", "a3", None]
    assert len(queue) == 0


def test_an_item_is_taken_out_once() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.put("a", "a1")
    queue.put("a", "a2")
    assert queue.remove("a", "a1")
    assert not queue.remove("a", "a1")
    assert not queue.remove("b", "a2")
    assert queue.remove("a", "a2")
    assert (len(queue), queue.take()) == (0, None)


@given(st.lists(st.integers(0, 3)))
def test_whoever_asks_for_little_waits_at_most_one_round(lanes: list[int]) -> None:
    queue: FairQueue[tuple[int, int]] = FairQueue()
    for number, lane in enumerate(lanes):
        queue.put(lane, (lane, number))
    queue.put("quiet", (9, 0))
    taken = [queue.take() for _ in range(len(lanes) + 1)]
    assert taken.index((9, 0)) <= len(set(lanes))
    assert sorted(item for item in taken if item is not None) == sorted(
        [*((x, n) for n, x in enumerate(lanes)), (9, 0)]
    )
