"""``db`` and ``artifacts``: the store's schema, and who wrote what. They ask the database, with or without a daemon."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import click
import msgspec
import trio

from compass_forged.cli import common
from compass_forged.config import Config, find_config, load_store_config
from compass_forged.daemon import open_database
from compass_forged.ports import AuthoredArtifact, Store
from compass_forged.store.connect import ConnectParams
from compass_forged.store.migrate import migrate as apply_migrations
from compass_forged.store.migrate import migration_status
from compass_forged.store.postgres import open_postgres_store

_T = TypeVar("_T")


def migrate(config_path: Path | None) -> None:
    """Apply what is due and say what was."""
    applied = trio.run(_on_store, load_store_config(find_config(config_path)), apply_migrations)
    for migration in applied:
        click.echo(f"applied {migration.version:04} {migration.name}")
    if not applied:
        click.echo("nothing to apply")


def show_status(config_path: Path | None, *, as_json: bool) -> None:
    """Print every migration and its state; exit 1 if the schema is not this version's."""
    found = trio.run(_on_store, load_store_config(find_config(config_path)), migration_status)
    if as_json:
        click.echo(msgspec.json.encode(found))
    else:
        for row in found:
            when = row.applied_at.isoformat(timespec="seconds") if row.applied_at else "-"
            click.echo(f"{row.version:04}  {row.state:8}  {when:25}  {row.name}")
    if any(row.state != "applied" for row in found):
        raise common.Exit("the schema is not this version's; run `compass-forged db migrate`", common.EXIT_FAILED)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which artifacts: of an agent's handle, of a repository's name, or of all; at most ``limit``."""

    agent: str | None
    repo: str | None
    limit: int


def show_artifacts(config_path: Path | None, wanted: Wanted, *, as_json: bool) -> None:
    """Print who wrote what, the newest first; says on stderr where there is more."""

    async def read(place: ConnectParams) -> list[AuthoredArtifact]:
        async with open_postgres_store(place, connections=1, apply_migrations=False) as store:
            return await _wanted(store, wanted.agent, wanted.repo, wanted.limit + 1)

    found = trio.run(_on_store, load_store_config(find_config(config_path)), read)
    shown = found[: wanted.limit]
    if as_json:
        click.echo(msgspec.json.encode([_row(artifact) for artifact in shown]))
    else:
        common.table(
            ["CREATED", "AGENT", "OWNER", "SESSION", "KIND", "ARTIFACT", "URL"],
            [
                [
                    artifact.created_at,
                    artifact.account.agent,
                    artifact.account.owner,
                    artifact.session_id,
                    artifact.coordinate.kind,
                    f"{artifact.repo}#{artifact.coordinate.number}",
                    artifact.url,
                ]
                for artifact in shown
            ],
        )
    if len(found) > len(shown):
        click.echo(f"compass-forged: these are the newest {len(shown)}; --limit shows more", err=True)


async def _wanted(store: Store, agent: str | None, repo: str | None, limit: int) -> list[AuthoredArtifact]:
    if agent is None:
        return await store.list_authored_artifacts(repo=repo, limit=limit)
    account = await store.agent_account(agent)
    if account is None:  # of whom nothing can stand in the index
        return []
    return await store.list_authored_artifacts_by_agent(account.agent_id, repo=repo, limit=limit)


def _row(artifact: AuthoredArtifact) -> dict[str, object]:
    at = artifact.coordinate
    return {
        "forge": {"provider": at.provider, "host": at.host},
        "repo": artifact.repo,
        "kind": at.kind,
        "number": at.number,
        "url": artifact.url,
        "agent": artifact.account.agent,
        "owner": artifact.account.owner,
        "session": artifact.session_id,
        "client_request_id": artifact.client_request_id,
        "created_at": artifact.created_at,
    }


async def _on_store(config: Config, work: Callable[[ConnectParams], Awaitable[_T]]) -> _T:
    async with open_database(config) as place:
        return await work(place)
