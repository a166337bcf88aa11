"""``doctor``: what is wrong with a configuration's credentials, and what to do about it."""

import re
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
import trio

from compass_forged.cli import common
from compass_forged.doctor import examine

_REPO = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]{0,38})/((?!\.{1,2}\Z)[A-Za-z0-9._-]{1,100})", re.ASCII)


def diagnose(config_path: Path | None, repos: Sequence[str], *, as_json: bool) -> int:
    """Look and tell; the exit code: 1 if anything is bad."""
    wanted = [_repository(repo) for repo in repos]
    findings = trio.run(examine, common.configuration(config_path), wanted)
    if as_json:
        click.echo(msgspec.json.encode(findings))
    else:
        rows = [[finding.subject, finding.check, finding.state.upper(), finding.said] for finding in findings]
        common.table(["SUBJECT", "CHECK", "STATE", "FOUND"], rows)
    return common.EXIT_FAILED if any(finding.state == "bad" for finding in findings) else 0


def _repository(text: str) -> tuple[str, str]:
    match = _REPO.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r} is no OWNER/NAME", param_hint="--repo")
    return match[1], match[2]
