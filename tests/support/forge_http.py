"""A scripted GitHub behind the HTTP caller, without a network; and a guard that remembers when a write went out."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import trio

from compass_forged.budget import Budget, BudgetSettings
from compass_forged.ports import CallContext, TokenSource
from compass_forged.providers.caller import ForgeHttp
from compass_forged.providers.credentials import Credential, StaticToken
from compass_forged.providers.gate import Gate
from compass_forged.providers.github import GitHubProvider
from compass_forged.providers.github_dialect import GitHubDialect
from compass_forged.providers.http import HttpTransport
from compass_forged.providers.urls import BaseUrl

BASE = BaseUrl.parse("https://api.github.com")
TOKEN = "ghs_canary-token-of-the-author-0001"
SAMPLES = Path(__file__).parent.parent / "providers" / "samples"
SHARED = Path(__file__).parents[3] / "shared" / "contracts"


@dataclass
class RecordingGuard:
    """Counts ``sending``; ``sent`` as the port has it."""

    sendings: int = 0

    @property
    def sent(self) -> bool:
        return self.sendings > 0

    async def sending(self) -> None:
        await trio.lowlevel.checkpoint()
        self.sendings += 1


def new_context(container: str = "box") -> tuple[CallContext, RecordingGuard]:
    guard = RecordingGuard()
    return CallContext(container=container, guard=guard), guard


Handler = Callable[[httpx.Request], Awaitable[httpx.Response]]


def handler(reply: Callable[[httpx.Request], httpx.Response]) -> Handler:
    """A handler that answers without waiting for anything."""

    async def respond(request: httpx.Request) -> httpx.Response:
        await trio.lowlevel.checkpoint()
        return reply(request)

    return respond


@dataclass
class ScriptedForge(httpx.AsyncBaseTransport):
    """Answers requests in order from a script: a response, an exception to raise, or a handler to call."""

    script: list[httpx.Response | Exception | Handler]
    requests: list[httpx.Request] = field(default_factory=list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await trio.lowlevel.checkpoint()
        self.requests.append(request)
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step if isinstance(step, httpx.Response) else await step(request)

    def bodies(self) -> list[Any]:
        return [json.loads(request.content) for request in self.requests]


def answer(status: int, body: object = None, headers: Mapping[str, str] | None = None) -> httpx.Response:
    """A response as the network would bring it: its body a stream of raw bytes."""
    content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    return httpx.Response(status, headers=dict(headers or {}), stream=httpx.ByteStream(content))


def sample(name: str) -> httpx.Response:
    recorded = json.loads((SAMPLES / f"{name}.json").read_text())
    return answer(recorded["status"], recorded["body"], recorded["headers"])


def new_http(
    forge: httpx.AsyncBaseTransport | None,
    *,
    source: TokenSource | None = None,
    settings: BudgetSettings | None = None,
    base: BaseUrl = BASE,
    jitter: float = 0.5,
) -> ForgeHttp:
    return ForgeHttp(
        HttpTransport(base, transport=forge),
        Gate(Budget(settings or BudgetSettings()), name="test"),
        Credential("author", source or StaticToken(TOKEN)),
        GitHubDialect(wall_clock=lambda: 1_760_000_000.0),
        jitter=lambda: jitter,
    )


def new_github(*script: httpx.Response | Exception | Handler, **options: Any) -> tuple[GitHubProvider, ScriptedForge]:
    forge = ScriptedForge(list(script))
    return GitHubProvider(new_http(forge, **options)), forge


def issue_json(number: int = 7, repo: str = "acme/site", **more: object) -> dict[str, object]:
    return {
        "id": 1000 + number,
        "number": number,
        "html_url": f"https://github.com/{repo}/issues/{number}",
        "title": f"Issue {number}",
        "state": "open",
        "body": "text",
        "user": {"login": "compass[bot]", "type": "Bot"},
        "labels": [],
        "comments": 0,
        "created_at": "2026-01-02T03:04:05Z",
        "updated_at": "2026-01-02T03:04:05Z",
        **more,
    }


def comment_json(number: int, issue: int = 7, repo: str = "acme/site", **more: object) -> dict[str, object]:
    return {
        "id": number,
        "html_url": f"https://github.com/{repo}/issues/{issue}#issuecomment-{number}",
        "body": f"comment {number}",
        "user": {"login": "ada", "type": "User"},
        "created_at": "2026-01-02T03:04:05Z",
        **more,
    }


def pull_json(number: int = 7, repo: str = "acme/site", **more: object) -> dict[str, object]:
    def end(ref: str, sha: str) -> dict[str, object]:
        return {"ref": ref, "sha": sha * 40, "label": f"acme:{ref}", "repo": {"full_name": repo}, "user": None}

    page = f"https://github.com/{repo}/pull/{number}"
    ends = {"head": end("topic", "a"), "base": end("main", "b")}
    return {**issue_json(number, repo), "html_url": page, **ends, **more}


def review_json(number: int = 80, pull: int = 7, repo: str = "acme/site", **more: object) -> dict[str, object]:
    return {
        "id": number,
        "html_url": f"https://github.com/{repo}/pull/{pull}#pullrequestreview-{number}",
        "state": "COMMENTED",
        "body": "text",
        "user": {"login": "compass[bot]", "type": "Bot"},
        **more,
    }


def review_comment_json(number: int, pull: int = 7, repo: str = "acme/site", **more: object) -> dict[str, object]:
    return {
        "id": number,
        "html_url": f"https://github.com/{repo}/pull/{pull}#discussion_r{number}",
        "path": "a.py",
        "line": 3,
        "body": f"comment {number}",
        "user": {"login": "ada", "type": "User"},
        "created_at": "2026-01-02T03:04:05Z",
        **more,
    }
