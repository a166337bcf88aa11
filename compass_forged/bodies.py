"""How many bytes of requests the daemon holds over all containers: one bound, and fair waiting at it.

A frame counts from the moment its length is known until its call has been answered, by the length of its payload. At
the bound a connection's reader waits, and so reads no more. The rules:

* Never more than the bound is held in all.
* A container may hold as much as is left free: alone one half of the bound, beside another such one a third. So a
  container that comes later finds room, however much the others send. (Switches share their buffers by this rule:
  Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998.)
* A container that holds nothing may have all that is left. So a frame that the bound has room for gets its turn.
* Turns go round by container, and within a container by arrival. Whoever has its share is passed over. For one that
  holds nothing and does not fit yet, what becomes free is kept: smaller frames do not slip past it for ever.

Nobody who holds something waits for something else in here, so that what is held is given back in the end: calls have
deadlines, and a frame that has begun has one too.
"""

import trio


class Share:
    """What one container holds, in bytes, and who of it waits.

    Attributes:
        held: bytes.
    """

    __slots__ = ("held", "waiting")

    def __init__(self) -> None:
        self.held = 0
        self.waiting: list[
            _Waiter
        ] = []  # at most one a connection; a deque would weigh more than the connection's rest


class _Waiter:
    __slots__ = ("granted", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.granted = trio.Event()


class BodyBytes:
    """The bound and who holds what of it; one instance a daemon."""

    def __init__(self, most: int) -> None:
        """``most`` is the bound in bytes; at least as much as the largest frame, or that one waits for ever."""
        self._most = most
        self._free = most
        self._shares: dict[str, Share] = {}
        self._turns: dict[Share, None] = {}  # those with waiters, whoever is next first

    @property
    def held(self) -> int:
        """Bytes held in all."""
        return self._most - self._free

    @property
    def waiting(self) -> int:
        """How many readers wait for room."""
        return sum(len(share.waiting) for share in self._turns)

    def share_of(self, container: str) -> Share:
        """The container's share, common to its connections."""
        return self._shares.setdefault(container, Share())

    def forget(self, container: str) -> None:
        """The container was closed. What its connections still hold comes back as they end."""
        self._shares.pop(container, None)

    def take_nowait(self, share: Share, size: int) -> bool:
        """Take ``size`` bytes if there is room and nobody waits; whether it did. Not a checkpoint."""
        if self._turns:
            return False
        free = self._free - size
        held = share.held + size
        if held > free and (share.held or free < 0):
            return False
        self._free = free
        share.held = held
        return True

    async def take(self, share: Share, size: int) -> None:
        """Take ``size`` bytes once it is this container's turn and there is room."""
        waiter = _Waiter(size)
        share.waiting.append(waiter)
        self._turns.setdefault(share)
        self._serve()
        try:
            await waiter.granted.wait()
        except BaseException:
            self._leave(share, waiter)
            raise

    def give(self, share: Share, size: int) -> None:
        """Give bytes back. Not a checkpoint."""
        self._free += size
        share.held -= size
        if self._turns:
            self._serve()

    def _leave(self, share: Share, waiter: _Waiter) -> None:
        if waiter.granted.is_set():  # in the moment in which the wait was cancelled
            self.give(share, waiter.size)
            return
        share.waiting.remove(waiter)
        if not share.waiting:
            del self._turns[share]
        self._serve()  # it may have been the one for whom room was kept

    def _serve(self) -> None:
        """Grant what fits, a frame a container in each round."""
        granted = True
        while granted:
            granted = False
            for share in list(self._turns):
                size = share.waiting[0].size
                if share.held and share.held + size > self._free - size:
                    continue  # it has its share
                if size > self._free:
                    return
                self._grant(share)
                granted = True

    def _grant(self, share: Share) -> None:
        waiter = share.waiting.pop(0)
        self._free -= waiter.size
        share.held += waiter.size
        del self._turns[share]
        if share.waiting:
            self._turns[share] = None  # behind the others
        waiter.granted.set()


class Purse:
    """What one connection holds: the frame at hand, and its calls in flight. Given back as a whole at its end."""

    __slots__ = ("_bodies", "_calls", "_frame", "_share")

    def __init__(self, bodies: BodyBytes, container: str) -> None:
        self._bodies = bodies
        self._share = bodies.share_of(container)
        self._frame = 0
        self._calls: dict[str, int] = {}

    def begin(self, size: int) -> bool:
        """Count the frame at hand, of ``size`` bytes, unless it is counted already; False where it must ``wait``."""
        if self._frame or self._bodies.take_nowait(self._share, size):
            self._frame = size
            return True
        return False

    async def wait(self, size: int) -> None:
        """Count the frame at hand once there is room. Bounded: what is held has deadlines, and turns go round."""
        await self._bodies.take(self._share, size)
        self._frame = size

    def keep(self, call_id: str) -> None:
        """The frame has become a call."""
        self._calls[call_id] = self._frame
        self._frame = 0

    def drop(self) -> None:
        """The frame has come to nothing."""
        self._bodies.give(self._share, self._frame)
        self._frame = 0

    def answered(self, call_id: str) -> None:
        """A call has been answered."""
        self._bodies.give(self._share, self._calls.pop(call_id))

    def empty(self) -> None:
        """The connection has ended: give everything back. A second time does nothing."""
        size = self._frame + sum(self._calls.values())
        self._frame = 0
        self._calls.clear()
        self._bodies.give(self._share, size)
