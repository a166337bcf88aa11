"""A queue that is fair between those who fill it: one lane each, served in turns. Pure."""

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """First come, first served within a lane; lanes take turns."""

    def __init__(self) -> None:
        self._lanes: OrderedDict[object, deque[T]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def waiting_in(self, lane: object) -> int:
        """How many items wait in one lane."""
        found = self._lanes.get(lane)
        return len(found) if found else 0

    def put(self, lane: object, item: T) -> None:
        """Add an item at its lane's end."""
        self._lanes.setdefault(lane, deque()).append(item)
        self._count += 1

    def take(self) -> T | None:
        """The next item of the lane whose turn it is, which goes to the end of the row; None if nothing waits."""
        if not self._lanes:
            return None
        lane, items = self._lanes.popitem(last=False)
        item = items.popleft()
        if items:
            self._lanes[lane] = items
        self._count -= 1
        return item

    def remove(self, lane: object, item: T) -> bool:
        """Take an item out of its lane; False if it is not there any more."""
        items = self._lanes.get(lane)
        if items is None or item not in items:
            return False
        items.remove(item)
        if not items:
            del self._lanes[lane]
        self._count -= 1
        return True
