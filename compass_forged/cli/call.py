"""``call``: one call from the shell, through a container's socket, as an agent would make it."""

import secrets
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from compass_forged.cli import common
from compass_forged.misfit import JSON_KINDS, explain
from compass_forged.terminal import one_line, printable
from compass_forged.wire import schema
from compass_forged.wire.schema import ARM_NAMES, ARMS, Arm, ForgeCall, ForgeSelector, Issue

if TYPE_CHECKING:
    from compass_forged.agent import AgentError

_LISTS = frozenset({"labels"})
_JSON = frozenset({"comments"})


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("arm", type=click.Choice(ARM_NAMES), metavar="ARM")
@click.argument("fields", nargs=-1, metavar="KEY=VALUE…")
@click.option("--socket", "socket_path", required=True, type=click.Path(path_type=Path), help="The container's socket.")
@click.option("--key", default="", metavar="ID", help="client_request_id: a create under the same key happens once.")
@click.option("--forge", default="", metavar="PROVIDER[:HOST]", help="Which forge. Default: the configured default.")
@click.option("--timeout", type=click.FloatRange(min=0.001), help="Seconds; lowers the daemon's own deadline.")
@click.option("--json", "as_json", is_flag=True, help="The result arm, or the error, as one JSON object.")
def call(
    arm: str,
    fields: tuple[str, ...],
    socket_path: Path,
    key: str,
    forge: str,
    timeout: float | None,
    *,
    as_json: bool,
) -> None:
    """Make one forge call.

    ARM is one of create_issue, comment_on_issue, create_pull_request, comment_on_pull_request, submit_review,
    get_issue, list_issues, get_pull_request, subscribe, unsubscribe. A value of @FILE is read from that file, - from
    standard input, and @@ stands for an @ at its beginning. labels may be given several times; comments is a JSON list,
    such as '[{"path": "src/page.js", "line": 3, "body": "Why?"}]'.

    \b
    compass-forged call create_issue repo=acme/site title='Login fails' body=@report.md --key run-7-1 --socket S
    """  # noqa: D301 -- \b is click's mark for a paragraph that keeps its lines
    from compass_forged.agent import AgentError, SyncForgeClient  # noqa: PLC0415 -- `serve` does without the agent's side

    provider, _, host = forge.partition(":")
    request = ForgeCall(
        call_id=f"cli-{secrets.token_hex(6)}",
        arm=_arm(arm, fields),
        forge=ForgeSelector(provider=provider, host=host) if forge else None,
        client_request_id=key,
        timeout_ms=round(timeout * 1000) if timeout else 0,
    )
    try:
        with SyncForgeClient(socket_path) as client:
            result = client.forge(request)
    except AgentError as error:
        _show_error(error, as_json=as_json)
        raise common.Exit(_error_line(error), _error_code(error)) from error
    if as_json:
        click.echo(msgspec.json.encode(result))
    else:
        _show(result)


def _arm(name: str, fields: tuple[str, ...]) -> Arm:
    struct = ARMS[ARM_NAMES.index(name)]
    known = struct.__struct_fields__
    values: dict[str, Any] = {"arm": name}  # any JSON value: msgspec checks them below
    for item in fields:
        key, equals, text = item.partition("=")
        if not equals:
            raise click.UsageError(f"{item[:80]!r} is no KEY=VALUE")
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            raise click.UsageError(f"{name} has no field {key[:80]!r}; {hint}")
        value = _value(key, text)
        if key in _LISTS:
            values.setdefault(key, []).append(value)
        elif key in values:
            raise click.UsageError(f"{key} is given twice")
        else:
            values[key] = value
    try:
        return msgspec.convert(values, struct, strict=False)
    except msgspec.ValidationError as error:
        place, what = explain(error, JSON_KINDS)
        raise click.UsageError(f"{name}: {place}: {what}") from error


def _value(key: str, text: str) -> Any:  # a JSON value for ``comments``, else a str
    if text == "-" or (text.startswith("@") and not text.startswith("@@")):
        place = "standard input" if text == "-" else text[1:]
        try:
            # Bytes, so that line ends stay as they are.
            raw = sys.stdin.buffer.read() if text == "-" else Path(place).read_bytes()
            text = raw.decode()
        except (OSError, UnicodeDecodeError) as error:
            why = (error.strerror or str(error)) if isinstance(error, OSError) else "is no UTF-8"
            raise click.UsageError(f"{key}: {place}: {why}; to begin a value with @, write @@") from error
    elif text.startswith("@@"):
        text = text[1:]
    if key not in _JSON:
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise click.UsageError(f"{key}: not valid JSON: {error}") from error


# --- what comes back ------------------------------------------------------------------------------------------------


def _error_code(error: "AgentError") -> int:
    return common.EXIT_UNREACHABLE if type(error).__name__ == "DaemonUnreachable" else common.EXIT_FAILED


def _error_line(error: "AgentError") -> str:
    notes = [f"outcome {error.outcome}"] if error.outcome else []
    if error.retry_after_ms:
        notes.append(f"retry after {error.retry_after_ms} ms")
    return one_line(f"{error}" + (f" ({', '.join(notes)})" if notes else ""), 700)


def _show_error(error: "AgentError", *, as_json: bool) -> None:
    if as_json:
        shown = {
            "arm": "error",
            "code": error.code,
            "message": error.message,
            "retry_after_ms": error.retry_after_ms,
            "outcome": error.outcome,
        }
        click.echo(msgspec.json.encode(shown))


def _show(result: schema.ResultArm) -> None:  # noqa: C901 -- one case per result arm
    match result:
        case schema.IssueResult():
            _show_issue(result.issue)
        case schema.PullRequestResult():
            _show_issue(result.pull_request)
        case schema.IssueCommentResult() | schema.PullRequestCommentResult():
            click.echo(f"commented: {one_line(result.comment.url)}")
        case schema.ReviewResult():
            click.echo(f"{one_line(result.review.verdict)}: {one_line(result.review.url)}")
        case schema.IssuesResult():
            for item in result.items:
                labels = f"  [{one_line(', '.join(item.labels))}]" if item.labels else ""
                click.echo(f"#{item.number}  {item.state}  {one_line(item.title)}{labels}")
            if result.next_cursor:
                click.echo(f"more: cursor={one_line(result.next_cursor, 2048)}")
        case schema.SubscribedResult():
            click.echo(f"subscribed: {one_line(result.subscription_id)}")
        case schema.UnsubscribedResult():
            click.echo("unsubscribed")
        case schema.ErrorResult():
            raise common.Exit(one_line(f"{result.code}: {result.message}"), common.EXIT_FAILED)


def _show_issue(issue: Issue) -> None:
    if issue.replayed:
        note = " (the key was used for another request)" if issue.replay_mismatch else ""
        where = f"{one_line(issue.repo)}#{issue.number}"
        click.echo(f"{where} was created by an earlier attempt{note}: {one_line(issue.url)}")
        return
    click.echo(f"{one_line(issue.repo)}#{issue.number}  {issue.state}  {one_line(issue.title)}")
    click.echo(one_line(issue.url))
    author = issue.author.login if issue.author else "nobody"
    click.echo(f"author {one_line(author)}; labels {one_line(', '.join(issue.labels)) or 'none'}")
    if said := issue.attribution:
        sure = "verified" if said.verified else "a claim in the text"
        click.echo(one_line(f"written by agent {said.agent} of {said.owner} in session {said.session} ({sure})"))
    for warning in issue.warnings:
        click.echo(f"warning: {one_line(warning)}")
    if issue.body:
        click.echo("\n" + printable(issue.body))
    for comment in issue.comments:
        click.echo(f"\n--- {one_line(comment.author.login)}, {one_line(comment.created_at)}")
        click.echo(printable(comment.body))
    if issue.comments_total > len(issue.comments):
        click.echo(f"\n({issue.comments_total - len(issue.comments)} older comments are not shown)")
