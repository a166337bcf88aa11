"""A fenced document: sections of data between markers that hold a nonce, so that no text can forge one. Pure.

A marker is a line of its own, ``--- NONCE heading``. The nonce is drawn for each rendering and occurs in no text of the
document, so the text of a section can end neither the section nor the document, nor begin another. Headings and what
stands outside the markers hold words of ours and guarded values alone.
"""

import secrets
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from compass_forged.agent.render.guard import MORE, flat
from compass_forged.agent.render.invisible import visible

NONCE_CHARS: Final = 8
_DRAWS: Final = 64

Draw = Callable[[], str]
"""Draws a nonce of 8 hexadecimal digits."""


def draw_nonce() -> str:
    """A nonce that nobody can guess."""
    return secrets.token_hex(NONCE_CHARS // 2)


def left_out(count: int, noun: str) -> str:
    """That ``count`` of something are not shown."""
    return f"left out: {count} {noun}{'s' * (count != 1)}"


class Section(NamedTuple):
    """A marker's heading, and the text behind it, perhaps none."""

    heading: str
    text: str = ""

    @property
    def size(self) -> int:
        """About how many characters it takes, marker included."""
        return len(self.heading) + len(self.text) + NONCE_CHARS + 7


class Document:
    """Collects what one rendering shows; counts the invisible characters that it takes out."""

    def __init__(self) -> None:
        self._sections: list[Section] = []
        self._taken = 0

    def clean(self, text: str, limit: int) -> str:
        """``text`` as a section may hold it: visible, and cut behind ``limit`` characters with a mark that says so."""
        shown, taken = visible(text)
        self._taken += taken
        shown = shown.rstrip("\n")
        if len(shown) > limit:
            kept = visible(shown[:limit])[0]  # a joiner whose neighbour was cut off joins nothing
            return f"{kept}{MORE}(truncated, {len(shown) - len(kept)} chars)"
        return shown

    def line(self, text: str, limit: int) -> str:
        """Any text on one line, at most ``limit`` characters long."""
        self._taken += visible(text[: 8 * limit])[1]
        return flat(text, limit)

    def add(self, heading: str, lines: Iterable[str] = ()) -> None:
        """Add a section; each of ``lines`` is one."""
        self._sections.append(Section(heading, "\n".join(lines)))

    def add_all(self, sections: Iterable[Section]) -> None:
        """Add sections as they are."""
        self._sections.extend(sections)

    def add_newest(self, groups: list[list[Section]], total: int, room: int, noun: str) -> None:
        """Add the newest of ``groups``, which come oldest first, as far as ``room`` characters go.

        How many of ``total`` are left out is said before them.
        """
        kept = 0
        for group in reversed(groups):
            room -= sum(section.size for section in group)
            if room < 0:
                break
            kept += 1
        self.left_out(total - kept, noun)
        for group in groups[len(groups) - kept :]:
            self.add_all(group)

    def left_out(self, count: int, noun: str) -> None:
        """Say that ``count`` of something are not shown; nothing where there are none."""
        if count > 0:
            self.add(left_out(count, noun))

    def fenced(self, draw: Draw) -> tuple[str, str]:
        """The nonce, and the sections between their markers.

        Raises:
            RuntimeError: ``draw`` drew nothing but what the text holds already; a random one does not.
        """
        texts = [part for section in self._sections for part in section]
        for _ in range(_DRAWS):
            nonce = draw()
            if not any(nonce in text for text in texts):
                break
        else:
            raise RuntimeError("every nonce drawn occurs in the text; is the source of nonces random?")
        shown = [f"--- {nonce} {each.heading}" + (f"\n{each.text}" if each.text else "") for each in self._sections]
        shown.append(f"--- {nonce} end")
        if self._taken:
            noun = "character was" if self._taken == 1 else "characters were"
            shown.append(f"({self._taken} invisible {noun} taken out.)")
        return nonce, "\n".join(shown)
