"""``python -m compass_forged.emulator``: the forge as a process of its own, for demos and end-to-end tests.

It prints one line, a JSON object: ``url`` of the GitHub half with ``token_files`` by login, ``linear_url`` of the
Linear half with ``linear_token_file``, and ``control_token_file`` for both; then it serves until SIGTERM or SIGINT and
exits 0. Tokens are only ever in files that nobody else can read.
"""

import json
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import trio

from compass_forged.emulator.app import Forge, ForgeSettings
from compass_forged.emulator.limits import LimitSettings
from compass_forged.emulator.linear_app import LinearForge, LinearSettings
from compass_forged.emulator.linear_seed import default_linear_seed, random_linear_token
from compass_forged.emulator.seed import BadSeed, default_seed, read_seed
from compass_forged.emulator.server import serve_forge


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, replacing what is there."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def write_tokens(folder: Path, control_token: str, tokens: Mapping[str, str]) -> dict[str, Any]:
    """Write the control token and each account's first token; says where they are."""
    control_file = folder / "control-token"
    write_private(control_file, control_token)
    token_files: dict[str, str] = {}
    for token, login in tokens.items():
        if login not in token_files:
            file = folder / f"token-{login}"
            write_private(file, token)
            token_files[login] = str(file)
    return {"control_token_file": str(control_file), "token_files": token_files}


async def run(forge: Forge, linear: LinearForge, port: int, linear_port: int, announcement: Mapping[str, Any]) -> None:
    """Serve until a signal asks to end."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with serve_forge(forge, port=port) as url, serve_forge(linear, port=linear_port) as linear_url:
            sys.stdout.write(json.dumps({"url": url, "linear_url": linear_url, **announcement}) + "\n")
            sys.stdout.flush()
            async for _ in signals:
                break


@click.command()
@click.option("--port", default=0, show_default=True, help="Port on 127.0.0.1; 0 takes a free one.")
@click.option("--linear-port", default=0, show_default=True, help="The Linear half's port, likewise.")
@click.option(
    "--seed",
    "seed_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="First contents of the GitHub half (.toml or .json) instead of the built-in ones.",
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the token files go, and stay (made if missing); by default a temporary folder, removed at the end.",
)
@click.option("--enterprise", metavar="RELEASE", help="Behave as this GitHub Enterprise Server, such as 3.19.0.")
def main(port: int, linear_port: int, seed_file: Path | None, folder: Path | None, enterprise: str | None) -> None:
    """Run the bundled forge on the loopback interface."""
    with ExitStack() as stack:
        try:
            seed = read_seed(seed_file) if seed_file else default_seed()
            control_token = secrets.token_urlsafe(32)
            limits = LimitSettings(per_hour=None) if enterprise else LimitSettings()
            prefix = "/api/v3" if enterprise else ""
            settings = ForgeSettings(limits, enterprise, prefix, control_token)
            forge = Forge(seed, settings=settings)
        except BadSeed as error:
            raise click.ClickException(str(error)) from error
        if folder:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="compass-forge-")))
        announcement = write_tokens(place, control_token, seed.get("tokens", {}))
        linear_token = random_linear_token()
        write_private(place / "token-linear", linear_token)
        announcement["linear_token_file"] = str(place / "token-linear")
        linear = LinearForge(default_linear_seed(linear_token), settings=LinearSettings(control_token=control_token))
        try:
            trio.run(run, forge, linear, port, linear_port, announcement)
        except* OSError as errors:
            ports = f"port {port} or {linear_port}" if linear_port else f"port {port}"
            raise click.ClickException(f"{ports}: {errors.exceptions[0]}; choose another with --port") from None
