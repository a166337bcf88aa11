"""What the documents show a user: commands and options that exist, names that can be imported, configurations that are
taken, links that lead somewhere."""

import ast
import importlib
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

from compass_forged.cli.main import cli
from compass_forged.cli.mcp import _parser
from compass_forged.config import check_config, read_config
from compass_forged.emulator.command import main as emulator
from tests.support.world import ROOT

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`(compass-forged [^`]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_EXTRAS = re.compile(r"(?:compass-forged|\.|\))\"?\[([a-z,-]+)\]")


def shown(*languages: str) -> list[object]:
    """The fenced texts of all pages in these languages."""
    return [
        pytest.param(text, id=f"{page.name}-{number}")
        for page in PAGES
        for number, (language, text) in enumerate(_FENCE.findall(page.read_text(encoding="utf-8")))
        if language in languages
    ]


def commands() -> Iterator[object]:
    """Our command lines, in fences and in the text."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for language, fenced in _FENCE.findall(text):
            if language == "sh":
                for line in fenced.replace("\\\n", " ").splitlines():
                    if line.startswith(("compass-forged ", "python -m compass_forged")):
                        yield pytest.param(line, id=f"{page.name}: {line[:50]}")
        for line in _INLINE.findall(_FENCE.sub("", text)):
            yield pytest.param(" ".join(line.split()), id=f"{page.name}: {line[:50]}")


def options_of(words: list[str]) -> set[str]:
    """The options of the command that the words begin with. A word that is no command of ours is an error."""
    if words[:2] == ["compass-forged", "mcp"]:
        return set(_parser()._option_string_actions)
    found: click.Command = emulator if words[0] == "python" else cli
    for word in words[1:]:
        if not isinstance(found, click.Group) or word.startswith("-") or not word.isascii():
            break
        # `db migrate|status` is how the text names two.
        names = word.split("|")
        assert set(names) <= set(found.commands), f"{word} is no command of {found.name}"
        found = found.commands[names[0]]
    return {name for parameter in found.params for name in parameter.opts}


@pytest.mark.parametrize("line", list(commands()))
def test_a_command_that_is_shown_is_there_and_so_are_its_options(line: str) -> None:
    words = shlex.split(line.translate(str.maketrans("[]", "  ")), comments=True)
    known = options_of(words)
    assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("text", shown("python"))
def test_what_a_snippet_imports_is_there(text: str) -> None:
    lines = re.findall(r"^(?:from|import) .+$", text, re.MULTILINE)
    assert lines
    for statement in ast.parse("\n".join(lines)).body:
        assert isinstance(statement, ast.Import | ast.ImportFrom)
        if isinstance(statement, ast.ImportFrom):
            module = importlib.import_module(statement.module or "")
            assert [name.name for name in statement.names if not hasattr(module, name.name)] == []


@pytest.mark.parametrize("text", shown("toml"))
def test_a_configuration_that_is_shown_is_taken(text: str, tmp_path: Path) -> None:
    if "[[forge]]" not in text:
        assert "[mcp_servers" in text, "a client's, which a test of the MCP bridge reads"
        return
    path = tmp_path / "config.toml"
    path.write_text(text, encoding="utf-8")
    forges = check_config(read_config(path), "shown", {}).forge
    assert sum(forge.default for forge in forges) == 1


@pytest.mark.parametrize("text", shown("json"))
def test_json_that_is_shown_is_json(text: str) -> None:
    for part in re.split(r"\n(?=\{)", text.strip()):
        msgspec.json.decode(part.replace(", …", ""))


def test_the_extras_that_are_named_are_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = set(project["optional-dependencies"])
    named = {
        extra
        for page in PAGES
        for several in _EXTRAS.findall(page.read_text(encoding="utf-8"))
        for extra in several.split(",")
    }
    assert {"daemon", "embedded", "mcp", "emulator"} <= named <= declared


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for link in _LINK.findall(text):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), f"{link}: nothing is there"
        if anchor:
            headings = _HEADING.findall(_FENCE.sub("", target.read_text(encoding="utf-8")))
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, f"{link}: no such heading"
