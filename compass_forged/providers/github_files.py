"""The files that a pull request changes at GitHub. Pure.

docs.github.com/rest/pulls/pulls#list-pull-requests-files; at most 3000 of them are listed.
"""

from typing import NamedTuple

import msgspec

from compass_forged.providers.answers import Items, decode_items
from compass_forged.providers.forge_answer import ForgeAnswer
from compass_forged.providers.github_answers import repo_path
from compass_forged.providers.http import HttpRequest


class _File(msgspec.Struct):
    filename: str
    patch: str | None = None


class ChangedFile(NamedTuple):
    """A file by the name that it has after the change. ``patch`` is "" for a binary or an oversize one."""

    path: str
    patch: str


_file_decoder = msgspec.json.Decoder(_File)


def files_request(repo: str, number: int, size: int, page: int) -> HttpRequest:
    """What reads a page of a pull request's files."""
    path = (*repo_path(repo), "pulls", str(number), "files")
    return HttpRequest("GET", path, (("per_page", str(size)), ("page", str(page))))


def read_files(answer: ForgeAnswer) -> Items[ChangedFile]:
    """A page of files.

    Raises:
        BadAnswer: it is none.
    """
    return decode_items(_file_decoder, lambda raw: ChangedFile(raw.filename, raw.patch or ""), answer)
