"""``container``, ``session`` and ``status``: thin over the control socket."""

import grp
from pathlib import Path

import click
import msgspec

from compass_forged.cli import common
from compass_forged.control.schema import ContainerState, CredentialState

_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON value.")


@click.group()
def container() -> None:
    """Open and close containers' sockets."""


@container.command("open")
@click.argument("name")
@click.option("--uid", "uids", type=click.IntRange(0), multiple=True, help="Let only this uid connect (repeatable).")
@click.option("--group", help="Group of the socket and its directory, by name or number.")
@common.config_option
@common.run_dir_option
def container_open(
    name: str, uids: tuple[int, ...], group: str | None, config_path: Path | None, run_dir: Path | None
) -> None:
    """Open a container's socket and print its path. Mount its directory, read-only, never the socket file."""
    with common.control(config_path, run_dir) as client:
        state = client.open_container(name, allowed_uids=uids, socket_group=_gid(group))
    click.echo(state.socket)


@container.command("close")
@click.argument("name")
@common.config_option
@common.run_dir_option
def container_close(name: str, config_path: Path | None, run_dir: Path | None) -> None:
    """Close a container's socket and end its session."""
    with common.control(config_path, run_dir) as client:
        client.close_container(name)
    click.echo(f"closed {name}")


@container.command("list")
@_json_option
@common.config_option
@common.run_dir_option
def container_list(config_path: Path | None, run_dir: Path | None, *, as_json: bool) -> None:
    """Show the open containers."""
    with common.control(config_path, run_dir) as client:
        items = client.list_containers()
    if as_json:
        click.echo(msgspec.json.encode(items))
    else:
        common.table(
            ["CONTAINER", "SOCKET", "UIDS", "CONNECTIONS", "SESSION"],
            [
                [
                    item.name,
                    item.socket if item.listening else f"{item.socket} (down)",
                    ",".join(map(str, item.allowed_uids)) or "any",
                    str(item.connections),
                    item.session.session_id if item.session else "-",
                ]
                for item in items
            ],
        )


@click.group()
def session() -> None:
    """Bind sessions to containers."""


@session.command("bind")
@click.argument("container")
@click.argument("session_id", metavar="SESSION")
@click.option("--agent", required=True, help="The agent's handle.")
@click.option("--owner", required=True, help="The handle of the user who owns the agent.")
@click.option("--scope", multiple=True, help="provider[:host]/repo that it may touch, * within a segment (repeatable).")
@click.option("--no-repositories", is_flag=True, help="An empty scope: it may touch nothing.")
@common.config_option
@common.run_dir_option
def session_bind(
    container: str,
    session_id: str,
    agent: str,
    owner: str,
    scope: tuple[str, ...],
    config_path: Path | None,
    run_dir: Path | None,
    *,
    no_repositories: bool,
) -> None:
    """Bind SESSION to an open CONTAINER."""
    if scope and no_repositories:
        raise click.UsageError("give --scope or --no-repositories, not both")
    wanted = list(scope) if scope or no_repositories else None
    with common.control(config_path, run_dir) as client:
        state = client.bind_session(container, session_id, agent=agent, owner=owner, scope=wanted)
    click.echo(_bound(state))


@session.command("unbind")
@click.argument("container")
@common.config_option
@common.run_dir_option
def session_unbind(container: str, config_path: Path | None, run_dir: Path | None) -> None:
    """End the session of CONTAINER; its socket stays."""
    with common.control(config_path, run_dir) as client:
        state = client.unbind_session(container)
    click.echo(_bound(state))


@session.command("list")
@_json_option
@common.config_option
@common.run_dir_option
def session_list(config_path: Path | None, run_dir: Path | None, *, as_json: bool) -> None:
    """Show the live sessions."""
    with common.control(config_path, run_dir) as client:
        items = [item for item in client.list_containers() if item.session is not None]
    if as_json:
        click.echo(msgspec.json.encode([{"container": item.name, "session": item.session} for item in items]))
    else:
        common.table(
            ["SESSION", "CONTAINER", "AGENT", "OWNER", "SCOPE"],
            [
                [
                    s.session_id,
                    item.name,
                    s.agent,
                    s.owner,
                    "all" if s.scope is None else ",".join(s.scope) or "nothing",
                ]
                for item in items
                if (s := item.session) is not None
            ],
        )


@click.command()
@_json_option
@common.config_option
@common.run_dir_option
def status(config_path: Path | None, run_dir: Path | None, *, as_json: bool) -> None:
    """Show how the daemon is: store, forges, containers, calls, counters."""
    with common.control(config_path, run_dir) as client:
        found = client.status()
    if as_json:
        click.echo(msgspec.json.encode(found))
        return
    store = f"{found.store} ({'reachable' if found.store_available else 'OUT OF REACH'})"
    state = "draining" if found.draining else "serving"
    click.echo(f"compass-forged {found.version}, pid {found.pid}, host {found.host_id}: {state}")
    click.echo(f"store {store}; forges {', '.join(found.forges) or 'none'}")
    click.echo(f"containers {found.containers}, sessions {found.sessions}, calls in flight {found.calls_in_flight}")
    if found.memory:
        most = f" of {_mebibytes(found.memory.limit)}: {found.memory.stage}" if found.memory.limit else ", no limit"
        held = _mebibytes(found.request_bytes_held)
        click.echo(f"memory {_mebibytes(found.memory.used)}{most}; requests held {held}")
    if found.credentials:
        common.table(
            [
                "FORGE",
                "CREDENTIAL",
                "ACCOUNT",
                "STATE",
                "REMAINING",
                "RESETS IN",
                "POINTS/MIN",
                "CREATED/H",
                "IN FLIGHT",
                "WAITING",
            ],
            [
                [
                    row.forge,
                    row.role,
                    row.account or "not known",
                    _gate(row),
                    "-" if row.remaining is None else f"{row.remaining} of {row.limit or '?'}",
                    "-" if row.resets_in is None else f"{row.resets_in:g} s",
                    str(row.points_last_minute),
                    str(row.creations_last_hour),
                    str(row.in_flight),
                    str(row.waiting),
                ]
                for row in found.credentials
            ],
        )
    if found.counters:
        common.table(
            ["COUNTER", "LABELS", "COUNT"],
            [
                [row.name, " ".join(f"{key}={value}" for key, value in row.labels.items()), str(row.count)]
                for row in found.counters
            ],
        )


def _gate(row: CredentialState) -> str:
    """What a credential's calls meet, the worst first."""
    if row.broken:
        return "REFUSED"
    if row.paused_for:
        return f"WRITES PAUSED for {row.paused_for:g} s"
    if row.closed_for:
        return f"closed for {row.closed_for:g} s"
    return "writes one at a time" if row.on_trial else "open"


def _mebibytes(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB"


def _gid(group: str | None) -> int | None:
    if group is None:
        return None
    if group.isascii() and group.isdigit():
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise click.BadParameter(f"no group {group!r} on this host", param_hint="--group") from None


def _bound(state: ContainerState) -> str:
    found = state.session
    if found is None:
        return f"{state.name}: no session"
    scope = "all repositories" if found.scope is None else ", ".join(found.scope) or "no repositories"
    return f"{state.name}: session {found.session_id}, agent {found.agent} of {found.owner}, {scope}"
