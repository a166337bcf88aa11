"""The live session table: which session is bound to which container, and who stands behind it.

Held in memory, so that a call asks no store who speaks. Filled from the store at start and kept true by the control
socket; every change goes to the store first. 1:1 both ways: a container has at most one session, a session one
container.
"""

from collections.abc import Iterable, Iterator

from compass_forged.ports import Session


class SessionTable:
    """Sessions by container and by id. Pure state, no checkpoints: a lookup and what follows it are atomic."""

    def __init__(self, sessions: Iterable[Session] = ()) -> None:
        self._by_container: dict[str, Session] = {}
        self._by_id: dict[str, Session] = {}
        for session in sessions:
            self.bind(session)

    def bind(self, session: Session) -> Session | None:
        """Make ``session`` its container's; return the session of another id that it replaces, if any."""
        before = self.unbind(session.container)
        if elsewhere := self._by_id.get(session.session_id):
            self.unbind(elsewhere.container)
        self._by_container[session.container] = session
        self._by_id[session.session_id] = session
        return before if before is not None and before.session_id != session.session_id else None

    def unbind(self, container: str) -> Session | None:
        """Forget the container's session and return it."""
        session = self._by_container.pop(container, None)
        if session is not None:
            del self._by_id[session.session_id]
        return session

    def session_of(self, container: str) -> str | None:
        """The id of the session bound to ``container`` right now; None if there is none."""
        session = self._by_container.get(container)
        return session.session_id if session is not None and session.session_id else None

    def resolve(self, session_id: str) -> Session | None:
        """The session of this id, if it is live."""
        return self._by_id.get(session_id)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_container.values()))

    def __len__(self) -> int:
        return len(self._by_container)
