import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_forged.errors import ConfigError
from compass_forged.providers.urls import BaseUrl


@pytest.mark.parametrize(
    ("text", "origin", "path"),
    [
        ("https://api.github.com", ("https", "api.github.com", 443), ()),
        ("https://API.GitHub.com/", ("https", "api.github.com", 443), ()),
        ("https://ghe.corp.example:8443/api/v3", ("https", "ghe.corp.example", 8443), ("api", "v3")),
        ("https://10.1.2.3", ("https", "10.1.2.3", 443), ()),
        ("http://127.0.0.1:4000", ("http", "127.0.0.1", 4000), ()),
        ("http://localhost:4000", ("http", "localhost", 4000), ()),
        ("http://[::1]:4000", ("http", "::1", 4000), ()),
    ],
)
def test_usable_base_urls(text: str, origin: tuple[str, str, int], path: tuple[str, ...]) -> None:
    base = BaseUrl.parse(text)
    assert base.origin == origin
    assert base.path == path
    assert BaseUrl.parse(base.url(base.target(["x"]))).origin == origin


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("http://api.github.com", "loopback only"),
        ("http://10.0.0.1", "loopback only"),
        ("http://localhost.evil.example", "loopback only"),
        ("ftp://api.github.com", "https://"),
        ("api.github.com", "https://"),
        ("https://api.github.com@evil.example", "user"),
        ("https://user:pw@api.github.com", "user"),
        ("https://api.github.com?x=1", "query"),
        ("https://api.github.com/#x", "fragment"),
        ("https://api.github.com/a/../b", "plain path"),
        ("https://api.github.com/%2e", "plain path"),
        ("https://127.1", "no usable host"),
        ("https://0x7f000001", "no usable host"),
        ("https://", "no usable host"),
        ("https://-a.example", "no usable host"),
        ("https://api.github.com:99999", "not a URL"),
        ("https://[::1", "not a URL"),
        ("https://api.github.com/\u00e9", "ASCII"),
        ("https://api.github .com", "ASCII"),
    ],
)
def test_other_base_urls_are_refused_with_the_reason(text: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        BaseUrl.parse(text)


BASE = BaseUrl.parse("https://ghe.example/api/v3")


def test_segments_and_values_are_encoded_whole() -> None:
    target = BASE.target(["repos", "a/b", "c%2F?#"], (("labels", "good first,a&b"), ("page", "2")))
    assert target == "/api/v3/repos/a%2Fb/c%252F%3F%23?labels=good%20first%2Ca%26b&page=2"


@pytest.mark.parametrize("segment", ["", ".", ".."])
def test_dot_segments_are_refused(segment: str) -> None:
    with pytest.raises(ValueError, match="segment"):
        BASE.target(["repos", segment])


@pytest.mark.parametrize(
    ("location", "place"),
    [
        (
            "https://ghe.example/api/v3/repositories/7/issues?page=2",
            (("repositories", "7", "issues"), (("page", "2"),)),
        ),
        ("https://GHE.example:443/api/v3/x", (("x",), ())),
        ("/api/v3/repositories/7", (("repositories", "7"), ())),
        ("https://ghe.example/api/v3/a%2Fb", (("a/b",), ())),
        ("https://ghe.example/api/v3", None),
        ("https://ghe.example/other/v3/x", None),
        ("https://ghe.example/api/v3/x/../y", None),
        ("https://ghe.example/api/v3/x/%2e%2e", None),
        ("https://ghe.example/api/v3//x", None),
        ("http://ghe.example/api/v3/x", None),
        ("https://ghe.example:444/api/v3/x", None),
        ("https://evil.example/api/v3/x", None),
        ("https://ghe.example@evil.example/api/v3/x", None),
        ("https://u@ghe.example/api/v3/x", None),
        ("//evil.example/api/v3/x", None),
        ("https://ghe.example:x/api/v3/x", None),
        ("https://ghe.example/api/v3/x?=&&", None),
        ("", None),
    ],
)
def test_only_places_below_the_base_are_places(location: str, place: object) -> None:
    assert BASE.locate(location) == place


def test_a_place_of_more_letters_than_a_url_has_is_none() -> None:
    longest = "https://ghe.example/api/v3/".ljust(8192, "x")
    assert BASE.locate(longest) is not None
    assert BASE.locate(longest + "x") is None
    assert BASE.locate("/api/v3/x?" + "a=1&" * 1_000_000) is None


@given(st.lists(st.text(min_size=1, max_size=10).filter(lambda s: s not in {".", ".."}), min_size=1, max_size=4))
def test_what_is_built_is_found_again(path: list[str]) -> None:
    try:
        target = BASE.target(path, (("k", path[0]),))
    except UnicodeEncodeError:
        return  # a lone surrogate, which no decoded frame holds
    assert target.isascii()
    found = BASE.locate(BASE.url(target))
    assert found == (tuple(path), (("k", path[0]),))
