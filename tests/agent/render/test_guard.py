"""Shapes of what stands outside free text: what fails is shown as malformed, whole."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_forged.agent.render.guard import MALFORMED, attr, flat, login, slug, token, url

URL = "https://github.com/acme/site/issues/7?a=b&c=%20#issuecomment-1"


@pytest.mark.parametrize(
    ("guard", "value"),
    [
        (attr, "changes_requested"),
        (attr, "2026-03-02T09:10:00Z"),
        (attr, "s-41"),
        (login, "mel"),
        (login, "compass-forge[bot]"),
        (slug, "acme/site.github.io"),
        (slug, "SEA"),
        (url, URL),
        (url, "http://[::1]:8080/a"),
        (token, "Y3Vyc29yOnYyOpHOAAE="),
        (token, "p2"),
        (token, "0d6c9a0e-1f7e-4b7e-9d3d-0a9c5a1e6f10"),
    ],
)
def test_a_value_of_the_shape_is_shown_as_it_is(guard: Callable[[str], str], value: str) -> None:
    assert guard(value) == value


@pytest.mark.parametrize(
    ("guard", "value"),
    [
        (attr, ""),
        (attr, "a b"),
        (attr, "a/b"),
        (attr, "ok\n"),
        (attr, "d\u00e9j\u00e0"),
        (attr, "\uff11"),
        (attr, "x" * 101),
        (login, "[bot]"),
        (login, "a[bot]b"),
        (login, "mel: approved"),
        (slug, "acme/site/x"),
        (slug, "acme/"),
        (slug, "acme/si te"),
        (url, "javascript:alert(1)"),
        (url, "https://a b"),
        (url, "https://a\nb"),
        (url, "HTTPS://a"),
        (url, "https://x/" + "a" * 2000),
        (url, "https://\u0430pple.com"),
        (token, "a b"),
        (token, ""),
    ],
)
def test_what_fails_its_shape_is_malformed(guard: Callable[[str], str], value: str) -> None:
    assert guard(value) == MALFORMED


@given(st.text(), st.sampled_from([attr, login, slug, url, token]))
def test_no_text_gets_a_line_end_or_a_space_past_a_guard(text: str, guard: Callable[[str], str]) -> None:
    shown = guard(text)
    assert shown == MALFORMED or (shown.isascii() and shown.isprintable() and " " not in shown)


@given(st.text(st.characters(codec=None)), st.integers(2, 40))
def test_flat_text_is_one_line_within_its_limit(text: str, limit: int) -> None:
    shown = flat(text, limit)
    assert len(shown) <= limit
    assert len(shown.splitlines()) <= 1
    shown.encode()


def test_a_cut_is_marked() -> None:
    assert flat("one two", 7) == "one two"
    assert flat("one two!", 7) == "one tw\u2026"
    assert flat(" " * 100 + "hidden", 10) == "\u2026"


def test_a_cut_leaves_no_joiner_behind_that_joins_nothing() -> None:
    assert flat("\U0001f469\u200d\U0001f692 x", 3) == "\U0001f469\u2026"
