"""Labels of Linear by their names. Pure.

A label belongs to a team or to the workspace, and a name may stand in both: the team's own comes first. A group of
labels is one too, but cannot be set; of its labels an issue has one at most, as far as the group is of that kind,
which only Linear can tell.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from compass_forged.errors import BadArgument, ForgeStatus
from compass_forged.providers.forge_answer import ForgeAnswer
from compass_forged.providers.http import HttpRequest
from compass_forged.providers.linear_answers import nodes, plain_name, query, reply
from compass_forged.providers.linear_documents import LABELS, LABELS_MAX

_SHOWN: Final = 10
_PER_NAME: Final = 2
"""The team's and the workspace's."""


class _Parent(msgspec.Struct):
    name: str | None = None


class _Owner(msgspec.Struct):
    id: str = ""


class _Label(msgspec.Struct):
    id: str
    name: str
    isGroup: bool = False  # noqa: N815 -- Linear's word
    parent: _Parent | None = None
    team: _Owner | None = None


_label_decoder = msgspec.json.Decoder(_Label)


@dataclass(frozen=True, slots=True)
class Label:
    """A label that can be set: its id, its name, and the group that it is of, "" for none."""

    id: str
    name: str
    group: str


def labels_request(team_id: str, names: Sequence[str]) -> HttpRequest:
    """What looks for labels of these names, in the team and in the workspace."""
    wanted = {
        "and": [
            {"or": [{"name": {"eqIgnoreCase": name}} for name in names]},
            {"or": [{"team": {"id": {"eq": team_id}}}, {"team": {"null": True}}]},
        ]
    }
    return query(LABELS, filter=wanted, first=min(LABELS_MAX, _PER_NAME * len(names)))


def found_labels(answer: ForgeAnswer, team_id: str, names: Sequence[str]) -> list[Label]:
    """The labels of these names, each once.

    Raises:
        BadArgument: there is none of a name, or it is a group.
        BadAnswer: the answer cannot be used.
    """
    known = nodes(_label_decoder, lambda raw: raw, reply(LABELS, answer)).good
    chosen = [_choose(known, team_id, name) for name in names]
    unknown = [name for name, found in zip(names, chosen, strict=True) if found is None]
    if unknown:
        raise BadArgument(f"labels: neither the team nor the workspace has {_named(unknown)}")
    by_id = {found.id: found for found in chosen if found is not None}
    groups = [plain_name(found.name) for found in by_id.values() if found.isGroup]
    if groups:
        raise BadArgument(f"labels: {_named(groups)} is a group, which cannot be set; name one of its labels")
    return [
        Label(found.id, plain_name(found.name), plain_name(found.parent.name or "") if found.parent else "")
        for found in by_id.values()
    ]


def explained(labels: Iterable[Label]) -> ForgeStatus:
    """The forge's word that labels exclude each other, with those that may be meant."""
    groups: dict[str, list[str]] = {}
    for label in labels:
        if label.group:
            groups.setdefault(label.group, []).append(label.name)
    pairs = [f"{' and '.join(names)} are of the group {group}" for group, names in groups.items() if len(names) > 1]
    why = f": {'; '.join(pairs)}" if pairs else ""
    return ForgeStatus(422, f"labels: of one group an issue takes one label only{why}")


def _choose(known: Iterable[_Label], team_id: str, name: str) -> _Label | None:
    """The label of that name: one that can be set before a group, and the team's before the workspace's."""
    wanted = plain_name(name).casefold()
    fitting = [
        label
        for label in known
        if plain_name(label.name).casefold() == wanted and (label.team is None or label.team.id == team_id)
    ]
    return min(fitting, key=lambda label: (label.isGroup, label.team is None), default=None)


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return shown + (" and others" if len(names) > _SHOWN else "")
