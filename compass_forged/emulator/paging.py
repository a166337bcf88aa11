"""Pages of a list, with GitHub's ``Link`` header."""

from collections.abc import Sequence
from typing import TypeVar
from urllib.parse import parse_qsl, urlencode

from compass_forged.emulator.inputs import page_of
from compass_forged.emulator.records import Repo
from compass_forged.emulator.routing import Call

Item = TypeVar("Item")


def paginate(call: Call, repo: Repo, items: Sequence[Item]) -> tuple[Sequence[Item], dict[str, str]]:
    """The items of the page asked for, and the ``Link`` header, which is absent where there is one page only.

    Links go to ``/repositories/ID/...``; the order of the relations (prev, next, last, first) is that of recorded
    answers. Behind the last page the list is empty, and ``prev`` leads back to the last.
    """
    page = page_of(call.query)
    last = max(-(-len(items) // page.size), 1)
    start = (page.number - 1) * page.size
    relations: dict[str, int] = {}
    if page.number > 1:
        relations["prev"] = min(page.number - 1, last)
    if page.number < last:
        relations |= {"next": page.number + 1, "last": last}
    if page.number > 1:
        relations["first"] = 1
    base = f"{call.render.api}/repositories/{repo.id}{call.tail}"
    links = ", ".join(f'<{base}?{_query(call, number)}>; rel="{name}"' for name, number in relations.items())
    return items[start : start + page.size], {"link": links} if links and last > 1 else {}


def _query(call: Call, number: int) -> str:
    kept = [(name, value) for name, value in parse_qsl(call.query_string) if name != "page"]
    return urlencode([*kept, ("page", str(number))])
