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
    """The bound and who holds what of it; one instance a daemon.

    Attributes:
        free: bytes of the bound that nobody holds.
        turns: the shares with waiters, whoever is next first.
    """

    def __init__(self, most: int) -> None:
        """``most`` is the bound in bytes; at least as much as the largest frame, or that one waits for ever."""
        self._most = most
        self.free = most
        self._shares: dict[str, Share] = {}
        self.turns: dict[Share, None] = {}

    @property
    def held(self) -> int:
        """Bytes held in all."""
        return self._most - self.free

    @property
    def waiting(self) -> int:
        """How many readers wait for room."""
        return sum(len(share.waiting) for share in self.turns)

    def share_of(self, container: str) -> Share:
        """The container's share, common to its connections."""
        return self._shares.setdefault(container, Share())

    def forget(self, container: str) -> None:
        """The container was closed. What its connections still hold comes back as they end."""
        self._shares.pop(container, None)

    def take_nowait(self, share: Share, size: int) -> bool:
        """Take ``size`` bytes if there is room and nobody waits; whether it did. Not a checkpoint."""
        if self.turns:
            return False
        free = self.free - size
        held = share.held + size
        if held > free and (share.held or free < 0):
            return False
        self.free = free
        share.held = held
        return True

    async def take(self, share: Share, size: int) -> None:
        """Take ``size`` bytes once it is this container's turn and there is room."""
        waiter = _Waiter(size)
        share.waiting.append(waiter)
        self.turns.setdefault(share)
        self.serve()
        try:
            await waiter.granted.wait()
        except BaseException:
            self._leave(share, waiter)
            raise

    def give(self, share: Share, size: int) -> None:
        """Give bytes back. Not a checkpoint."""
        self.free += size
        share.held -= size
        if self.turns:
            self.serve()

    def _leave(self, share: Share, waiter: _Waiter) -> None:
        if waiter.granted.is_set():  # in the moment in which the wait was cancelled
            self.give(share, waiter.size)
            return
        share.waiting.remove(waiter)
        if not share.waiting:
            del self.turns[share]
        self.serve()  # it may have been the one for whom room was kept

    def serve(self) -> None:
        """Grant what fits, a frame a container in each round."""
        granted = True
        while granted:
            granted = False
            for share in list(self.turns):
                size = share.waiting[0].size
                if share.held and share.held + size > self.free - size:
                    continue  # it has its share
                if size > self.free:
                    return
                self._grant(share)
                granted = True

    def _grant(self, share: Share) -> None:
        waiter = share.waiting.pop(0)
        self.free -= waiter.size
        share.held += waiter.size
        del self.turns[share]
        if share.waiting:
            self.turns[share] = None  # behind the others
        waiter.granted.set()


class Purse:
    """What one connection holds: the frame at hand, and its calls in flight. Given back as a whole at its end.

    Every call passes here twice; so where there is room it costs two sums and a comparison, written out.
    """

    __slots__ = ("_bodies", "_calls", "_frame", "_share")

    def __init__(self, bodies: BodyBytes, container: str) -> None:
        self._bodies = bodies
        self._share = bodies.share_of(container)
        self._frame = 0
        self._calls: dict[str, int] = {}

    def begin(self, size: int) -> bool:
        """Count the frame at hand, of ``size`` bytes, unless it is counted already; False where it must ``wait``."""
        if self._frame:
            return True
        bodies, share = self._bodies, self._share
        free, held = bodies.free - size, share.held + size
        if bodies.turns or held > free:
            if not bodies.take_nowait(share, size):
                return False
        else:
            bodies.free = free
            share.held = held
        self._frame = size
        return True

    async def wait(self, size: int) -> None:
        """Count the frame at hand once there is room. Bounded: what is held has deadlines, and turns go round."""
        await self._bodies.take(self._share, size)
        self._frame = size

    def keep(self, call_id: str) -> None:
        """The frame at hand has become a call in flight."""
        self._calls[call_id] = self._frame
        self._frame = 0

    def drop(self) -> None:
        """The frame at hand has come to nothing."""
        self._give(self._frame)
        self._frame = 0

    def answered(self, call_id: str) -> None:
        """A call in flight has been answered, or the one that the frame at hand held."""
        size = self._calls.pop(call_id, 0)
        if not size:
            size, self._frame = self._frame, 0
        self._give(size)

    def empty(self) -> None:
        """The connection has ended: give everything back. A second time does nothing."""
        size = self._frame + sum(self._calls.values())
        self._frame = 0
        self._calls.clear()
        self._give(size)

    def _give(self, size: int) -> None:
        bodies = self._bodies
        bodies.free += size
        self._share.held -= size
        if bodies.turns:
            bodies.serve()
