import pytest

from compass_forged.errors import CallError, ConfigError
from compass_forged.providers.fake import FakeProvider
from compass_forged.providers.registry import Entry, Registry
from compass_forged.wire.schema import ForgeSelector


def entry(provider: str = "github", host: str = "github.com") -> Entry:
    return Entry(provider, host, FakeProvider(name=provider, host=host))


PUBLIC, PRIVATE, LINEAR = entry(), entry(host="GHE.corp.example"), entry("linear", "linear.app")


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        (None, PUBLIC),
        (ForgeSelector(provider="github"), PRIVATE),
        (ForgeSelector(provider="GitHub"), PRIVATE),
        (ForgeSelector(provider="github", host="github.com"), PUBLIC),
        (ForgeSelector(provider="github", host="ghe.CORP.example"), PRIVATE),
        (ForgeSelector(provider="linear"), LINEAR),
        (ForgeSelector(provider="linear", host="linear.app"), LINEAR),
    ],
)
def test_a_call_is_resolved_to_what_it_names(selector: ForgeSelector | None, found: Entry) -> None:
    registry = Registry([LINEAR, PRIVATE, PUBLIC], default=("github", "GitHub.com"))
    assert registry.resolve(selector) is found
    assert registry.find(selector) is found
    assert registry.default is PUBLIC
    assert registry.default_host("GitHub") == "ghe.corp.example"
    assert registry.default_host("gitlab") == ""
    assert registry.entries == (LINEAR, PRIVATE, PUBLIC)


def test_without_a_named_default_the_first_github_entry_is_it() -> None:
    assert Registry([LINEAR, PRIVATE, PUBLIC]).resolve(None) is PRIVATE


@pytest.mark.parametrize(
    ("selector", "named"),
    [
        (ForgeSelector(provider="gitlab"), "gitlab"),
        (ForgeSelector(provider="github", host="ghe.other"), "github:ghe.other"),
        (ForgeSelector(provider="", host="github.com"), ":github.com"),
        (ForgeSelector(provider="x\n\u202e", host="y" * 255), r"x\n\u202e:yyy"),
    ],
)
def test_an_unknown_coordinate_is_named_and_never_the_default(selector: ForgeSelector, named: str) -> None:
    with pytest.raises(CallError) as refused:
        Registry([PUBLIC]).resolve(selector)
    assert refused.value.code == "not_found"
    assert named in refused.value.message
    assert len(refused.value.message) < 200
    assert refused.value.message.isprintable()


@pytest.mark.parametrize(
    ("entries", "default", "what"),
    [
        ([], None, "must be the default"),
        ([LINEAR], None, "must be the default"),
        ([PUBLIC, LINEAR], ("linear", "linear.app"), "must be the default"),
        ([PUBLIC], ("github", "elsewhere"), "must be the default"),
        ([PUBLIC, entry(host="GITHUB.com")], None, "twice"),
        ([PUBLIC, entry("gitlab", "gitlab.com")], None, "not supported yet"),
        ([PUBLIC, entry("forgejo", "codeberg.org")], None, "not supported yet"),
    ],
)
def test_a_registry_that_cannot_serve_is_refused(
    entries: list[Entry], default: tuple[str, str] | None, what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        Registry(entries, default)
