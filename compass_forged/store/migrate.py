"""Migrations: applied in order, each in a transaction with its own record, under a lock that all daemons share.

Each step takes the lock anew and reads what is applied under it, so that of two daemons that start at once one applies
a step and the other finds it applied. A role that cannot alter passes where nothing is left to do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias

from compass_forged.errors import SchemaMismatch
from compass_forged.observability import get_logger
from compass_forged.store.bridge import Bridge, Timeouts, open_bridge
from compass_forged.store.connect import ConnectParams, DsnOrParams, as_params
from compass_forged.store.jobs import Executor
from compass_forged.store.statements import Migration, migrations, statements

MigrationState: TypeAlias = Literal["applied", "pending", "changed", "unknown"]

_log = get_logger(__name__)
_TIMEOUTS: Final = Timeouts(statement=120.0, lock=120.0, answer=150.0)
"""A migration may rewrite a table, and waits while another daemon's does."""


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """One migration as the database and this version see it.

    Attributes:
        version: its number.
        name: its name.
        applied_at: when the database applied it, by its own clock; None if it did not.
        state: ``applied``; ``pending``: not yet; ``changed``: applied, but from another text; ``unknown``: applied by
            a version that knows more than this one.
    """

    version: int
    name: str
    applied_at: datetime | None
    state: MigrationState


@dataclass(frozen=True, slots=True)
class _Applied:
    version: int
    name: str
    checksum: bytes
    applied_at: datetime


async def migrate(place: DsnOrParams, known: Sequence[Migration] | None = None) -> list[Migration]:
    """Bring the database to this version's schema; returns what was applied, in order.

    Args:
        place: the database.
        known: the migrations of this version; the package's own unless a test says otherwise.

    Raises:
        SchemaMismatch: the operator's: a migration was changed after it was applied, or the database is newer than
            this version, or a migration does not fit what stands there. Nothing of the failed step stays.
        StoreUnavailable: the database cannot be reached, or the role may not alter.
    """
    known = migrations() if known is None else known
    params = as_params(place)
    async with open_bridge(params, connections=1, timeouts=_TIMEOUTS) as bridge:
        done: list[Migration] = []
        if not _pending(await bridge.transaction(_read), known, params):
            return done
        while (step := await bridge.transaction(lambda executor: _apply_next(executor, known, params))) is not None:
            _log.info("store_migrated", store=params.shown, version=step.version, name=step.name)
            done.append(step)
        return done


async def migration_status(place: DsnOrParams, known: Sequence[Migration] | None = None) -> list[MigrationStatus]:
    """What ``db status`` shows: every migration that either side knows, in order. Changes nothing.

    Raises:
        StoreUnavailable: the database cannot be reached.
    """
    known = migrations() if known is None else known
    async with open_bridge(as_params(place), connections=1, timeouts=_TIMEOUTS) as bridge:
        applied = {row.version: row for row in await bridge.transaction(_read)}
    ours = {migration.version: migration for migration in known}
    return [_status(ours.get(version), applied.get(version)) for version in sorted(ours.keys() | applied.keys())]


async def check_schema(bridge: Bridge, params: ConnectParams, known: Sequence[Migration] | None = None) -> None:
    """See that the database has exactly this version's schema.

    Raises:
        SchemaMismatch: it has not; says which migration, and what to do.
    """
    pending = _pending(await bridge.transaction(_read), migrations() if known is None else known, params)
    if pending:
        raise SchemaMismatch(
            f"the store at {params.shown} lacks migration {_label(pending[0])}: run compass-forged db migrate"
        )


async def _read(executor: Executor) -> list[_Applied]:
    named = statements()
    if not (await executor.fetch(named["migrations_exist"]))[0]["present"]:
        return []
    rows = await executor.fetch(named["list_migrations"])
    return [_Applied(row["version"], row["name"], bytes(row["checksum"]), row["applied_at"]) for row in rows]


async def _apply_next(executor: Executor, known: Sequence[Migration], params: ConnectParams) -> Migration | None:
    """Apply the first migration that is missing, if any is; one transaction."""
    named = statements()
    await executor.fetch(named["lock_migrations"])
    await executor.fetch(named["create_migrations"])
    pending = _pending(await _read(executor), known, params)
    if not pending:
        return None
    step = pending[0]
    await executor.run_script(step.sql)
    await executor.fetch(named["record_migration"], step.version, step.name, step.checksum)
    return step


def _pending(applied: Sequence[_Applied], known: Sequence[Migration], params: ConnectParams) -> list[Migration]:
    """The migrations still to apply.

    Raises:
        SchemaMismatch: what is applied is not a beginning of what this version knows.
    """
    ours = {migration.version: migration for migration in known}
    for row in applied:
        state = _status(ours.get(row.version), row).state
        if state == "unknown":
            raise SchemaMismatch(
                f"the store at {params.shown} has migration {row.version:04}_{row.name}, which this version does not"
                " know: run the newer compass-forged"
            )
        if state == "changed":
            raise SchemaMismatch(
                f"migration {row.version:04}_{row.name} was applied to the store at {params.shown} from another text:"
                " install the version that applied it, or restore the database"
            )
    reached = max((row.version for row in applied), default=0)
    have = {row.version for row in applied}
    pending = [migration for migration in known if migration.version not in have]
    if pending and pending[0].version < reached:
        raise SchemaMismatch(
            f"the store at {params.shown} lacks migration {_label(pending[0])} though later ones are applied:"
            " restore the database"
        )
    return pending


def _status(ours: Migration | None, applied: _Applied | None) -> MigrationStatus:
    if ours is None:
        assert applied is not None  # noqa: S101 -- a version comes from one of the two
        return MigrationStatus(applied.version, applied.name, applied.applied_at, "unknown")
    if applied is None:
        return MigrationStatus(ours.version, ours.name, None, "pending")
    same = (ours.name, ours.checksum) == (applied.name, applied.checksum)
    return MigrationStatus(applied.version, applied.name, applied.applied_at, "applied" if same else "changed")


def _label(migration: Migration) -> str:
    return f"{migration.version:04}_{migration.name}"
