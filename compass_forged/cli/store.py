"""``db``: the store's schema."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click
import msgspec
import trio

from compass_forged.cli import common
from compass_forged.config import Config, find_config, load_store_config
from compass_forged.daemon import open_database
from compass_forged.store.connect import ConnectParams
from compass_forged.store.migrate import migrate as apply_migrations
from compass_forged.store.migrate import migration_status

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


async def _on_store(config: Config, work: Callable[[ConnectParams], Awaitable[_T]]) -> _T:
    async with open_database(config) as place:
        return await work(place)
