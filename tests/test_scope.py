import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_forged.scope import SCOPE_MAX_PATTERNS, allows, check_scope


def allowed(scope: tuple[str, ...] | None, repo: str, provider: str = "github", host: str = "github.com") -> bool:
    return allows(scope, provider=provider, host=host, repo=repo, default_host="github.com")


def test_a_pattern_without_a_provider_is_refused_before_it_allows_nothing() -> None:
    with pytest.raises(ValueError, match=r"'acme/\*' names no provider \(github, gitlab, forgejo, linear\)"):
        check_scope(["acme/*"])


def test_no_scope_allows_all_and_an_empty_one_nothing() -> None:
    assert allowed(None, "acme/site")
    assert not allowed((), "acme/site")


@pytest.mark.parametrize(
    ("pattern", "repo", "expected"),
    [
        ("github/acme/site", "acme/site", True),
        ("github/acme/site", "acme/site2", False),
        ("github/acme/site", "xacme/site", False),
        ("github/acme/*", "acme/site", True),
        ("github/acme/*", "acme/a/b", False),  # the star stays within its segment
        ("github/*", "acme/site", False),
        ("github/*/*", "acme/site", True),
        ("github/acme/web-*", "acme/web-shop", True),
        ("github/acme/web-*", "acme/api", False),
        ("github/acme/*-web-*", "acme/x-web-y", True),
        ("github/acme/*-web-*", "acme/x-we-y", False),
        ("github/acme/a*b*c", "acme/abc", True),
        ("github/acme/a*b*c", "acme/axxbxxbxxc", True),
        ("github/acme/a*b*c", "acme/acb", False),
        ("github/acme/**", "acme/site", True),
        ("github/acme/*", "acme/", True),
        ("github/acme/a.c", "acme/abc", False),  # a dot is a dot
        ("GitHub/ACME/Site", "acme/SITE", True),
        ("linear/acme/site", "acme/site", False),
    ],
)
def test_a_pattern_allows_what_it_says(pattern: str, repo: str, expected: bool) -> None:
    assert allowed((pattern,), repo) is expected


def test_one_pattern_that_allows_is_enough() -> None:
    assert allowed(("linear/SEA", "github/acme/site"), "acme/site")


def test_a_pattern_without_a_host_means_the_default_host_alone() -> None:
    assert not allowed(("github/acme/site",), "acme/site", host="ghe.example")
    assert allowed(("github:GHE.example/acme/site",), "acme/site", host="ghe.example")
    assert not allowed(("github:ghe.example/acme/site",), "acme/site")
    assert allowed(("github:ghe.example:8443/acme/site",), "acme/site", host="ghe.example:8443")


def test_a_team_key_is_compared_casefolded() -> None:
    assert allows(("linear/SEA",), provider="linear", host="linear.app", repo="sea", default_host="linear.app")


@pytest.mark.parametrize(
    "pattern",
    ["", "github", "github/", "/acme/site", "acme site", "github/acme/s?te", "github/acme/site\n", "github:/acme/site",
     "git hub/a/b", "github/ácme/site", "github/" + "a" * 141],
)  # fmt: skip
def test_what_is_no_pattern_is_named(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"^scope: .* is no pattern; write provider\[:host\]/repo"):
        check_scope([pattern])


def test_a_refused_pattern_is_shown_on_one_short_line() -> None:
    with pytest.raises(ValueError, match="scope") as caught:
        check_scope(["x\n" * 5000])
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


def test_the_number_of_patterns_is_bounded() -> None:
    most = ["github/acme/site"] * SCOPE_MAX_PATTERNS
    assert check_scope(most) == tuple(most)
    with pytest.raises(ValueError, match="201 patterns; at most 200"):
        check_scope([*most, "github/acme/site"])


def test_a_pattern_of_many_stars_costs_no_time() -> None:
    pattern = "github/acme/" + "a*" * 60 + "b"
    assert not allowed((pattern,), "acme/" + "a" * 100)
    assert allowed((pattern,), "acme/" + "a" * 99 + "b")


@given(st.text("ab*", max_size=8), st.text("ab", max_size=8))
def test_a_star_matches_as_a_plain_search_does(pattern: str, name: str) -> None:
    def matches(pattern: str, name: str) -> bool:
        if not pattern:
            return not name
        if pattern[0] == "*":
            return any(matches(pattern[1:], name[cut:]) for cut in range(len(name) + 1))
        return bool(name) and name[0] == pattern[0] and matches(pattern[1:], name[1:])

    assert allowed(("github/acme/x" + pattern,), "acme/x" + name) is matches(pattern, name)
