from pathlib import Path

import pytest

from compass_forged import config as module
from compass_forged.config import (
    Config,
    ForgeConfig,
    Limits,
    StoreVariable,
    TokenPlace,
    check_config,
    find_config,
    load_config,
)
from compass_forged.errors import ConfigError

TOKENS = {"GITHUB_FORGE_TOKEN": "t", "GITHUB_FORGE_REVIEWER_TOKEN": "r"}
FORGE = '[[forge]]\nprovider = "github"\ndefault = true\nauthor = { file = "/run/secrets/github" }\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def load(path: Path, text: str, **environ: str) -> Config:
    path.write_text(text)
    return load_config(path, environ)


def refusal(path: Path, text: str | bytes, **environ: str) -> str:
    """What a file is refused with, after its name: one line."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        load_config(path, environ)
    message = str(caught.value)
    assert message.isprintable()
    start, _, rest = message.partition(": ")
    assert start == str(path)
    return rest


# --- finding it -----------------------------------------------------------------------------------------------------


def test_the_given_file_goes_before_the_variable_and_that_before_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = tmp_path / "default.toml"
    monkeypatch.setattr(module, "DEFAULT_PATH", default)
    assert find_config(None, {}) is None
    default.touch()
    assert find_config(None, {}) == default
    assert find_config(None, {"FORGED_CONFIG": "/x.toml"}) == Path("/x.toml")
    assert find_config(None, {"FORGED_CONFIG": ""}) == default
    assert find_config(Path("/y.toml"), {"FORGED_CONFIG": "/x.toml"}) == Path("/y.toml")


def test_without_a_file_the_defaults_hold() -> None:
    assert load_config(None, {}) == Config()


def test_an_empty_file_is_the_defaults(path: Path) -> None:
    assert load(path, "") == Config()


# --- good files -----------------------------------------------------------------------------------------------------


def test_a_whole_file_is_read(path: Path) -> None:
    found = load(
        path,
        f"""
        run_dir = "/run/x"
        state_dir = "/var/lib/x"
        host_id = "host-1"
        store = {{ env = "DSN" }}
        {FORGE}
        reviewer = {{ env = "REVIEWER" }}
        [[forge]]
        provider = "github"
        host = "ghe.example"
        base_url = "https://ghe.example/api/v3"
        author = {{ env = "OTHER" }}
        [limits]
        drain_seconds = 5
        [budget]
        reserve = 0
        [log]
        format = "json"
        """,
        DSN="postgresql://x",
    )
    assert found.store == StoreVariable("DSN")
    assert found.host == "host-1"
    assert [(forge.host, forge.default) for forge in found.forge] == [("github.com", True), ("ghe.example", False)]
    assert found.forge[0].author == TokenPlace(file="/run/secrets/github")
    assert found.forge[0].reviewer == TokenPlace(env="REVIEWER")
    assert found.forge[1].reviewer is None
    assert found.limits == Limits(drain_seconds=5.0)
    assert found.budget.reserve == 0
    assert found.log.format == "json"


@pytest.mark.parametrize("store", ["embedded", "memory", "postgresql://u@db/forged", "postgres:///forged?host=/tmp"])
def test_a_store_that_holds_no_secret_may_stand_in_the_file(path: Path, store: str) -> None:
    assert load(path, f'store = "{store}"').store == store


def test_the_machines_name_stands_in_for_a_missing_host_id() -> None:
    assert Config().host


# --- usual variables ------------------------------------------------------------------------------------------------


def test_a_forge_exists_only_if_its_credential_does() -> None:
    assert load_config(None, {}).forge == []
    (forge,) = load_config(None, {"GITHUB_FORGE_TOKEN": "t"}).forge
    assert (forge.provider, forge.host, forge.default) == ("github", "github.com", True)
    assert forge.author == TokenPlace(env="GITHUB_FORGE_TOKEN")
    assert forge.reviewer is None
    assert load_config(None, {"GITHUB_FORGE_REVIEWER_TOKEN": "r"}).forge == []


def test_roles_that_the_file_does_not_place_take_their_usual_variables(path: Path) -> None:
    (forge,) = load(path, '[[forge]]\nprovider = "github"\ndefault = true', **TOKENS).forge
    assert forge.author == TokenPlace(env="GITHUB_FORGE_TOKEN")
    assert forge.reviewer == TokenPlace(env="GITHUB_FORGE_REVIEWER_TOKEN")


def test_a_role_that_the_file_places_keeps_its_place(path: Path) -> None:
    (forge,) = load(path, FORGE, **TOKENS).forge
    assert forge.author == TokenPlace(file="/run/secrets/github")


def test_an_empty_variable_is_no_credential() -> None:
    assert load_config(None, {"GITHUB_FORGE_TOKEN": ""}).forge == []


# --- bad files ------------------------------------------------------------------------------------------------------


def test_a_missing_file_is_named(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such file; write one, or name another with --config$") as caught:
        load_config(path, {})
    assert str(caught.value).startswith(str(path))


def test_what_cannot_be_read_is_named(path: Path) -> None:
    path.mkdir()
    with pytest.raises(ConfigError, match=r"config.toml: cannot be read: Is a directory; mend it there"):
        load_config(path, {})


@pytest.mark.parametrize(
    "text", [b"run_dir = ", b"a\x00b", b"\xff\xfe", b'x = "a\nb"', b"a = 1\na = 2", b"[limits", b'"a']
)
def test_what_is_no_toml_is_refused(path: Path, text: bytes) -> None:
    assert refusal(path, text).startswith("not valid TOML: ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('run_dri = "/x"', "run_dri: unknown key; did you mean 'run_dir'?"),
        ("[limit]\nx = 1", "limit: unknown key; did you mean 'limits'?"),
        ("[limits]\ndrain_second = 1", "limits.drain_second: unknown key; did you mean 'drain_seconds'?"),
        ("[budget]\nreserves = 1", "budget.reserves: unknown key; did you mean 'reserve'?"),
        ('[log]\nlevels = "info"', "log.levels: unknown key; did you mean 'level'?"),
        ('store = { envv = "X" }', "store.envv: unknown key; did you mean 'env'?"),
        (FORGE + "defaultt = true", "forge[0].defaultt: unknown key; did you mean 'default'?"),
        (FORGE + '[[forge]]\nprovidr = "github"', "forge[1].providr: unknown key; did you mean 'provider'?"),
        (
            '[[forge]]\nprovider = "github"\nauthor = { fil = "/x" }',
            "forge[0].author.fil: unknown key; did you mean 'file'?",
        ),
        ("[log]\nqqq = 1", "log.qqq: unknown key; known: format, level"),
        ('"a\\nb" = 1', "'a\\nb': unknown key; known: budget, forge, host_id, limits, log, run_dir, state_dir, store"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known(path: Path, text: str, expected: str) -> None:
    assert refusal(path, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run_dir = 1", "run_dir: expected a text, got a whole number"),
        ("store = 1", "store: expected a text or a table, got a whole number"),
        ("store = {}", "store.env: missing"),
        ('[forge]\nprovider = "github"', "forge: expected a list, got a table; write [[forge]] over each"),
        ("[[forge]]\ndefault = true", "forge[0].provider: missing"),
        ('[[forge]]\nprovider = "github"\ndefault = "yes"', "forge[0].default: expected true or false, got a text"),
        (
            '[[forge]]\nprovider = "github"\nauthor = "x"',
            (
                "forge[0].author: expected a table, got a text; "
                'a credential is named by its place, such as { file = "/run/secrets/github" }'
            ),
        ),
        ("limits = 1", "limits: expected a table, got a whole number"),
        ("[limits]\nframe_max_bytes = 1.5", "limits.frame_max_bytes: expected a whole number, got a number"),
        ("[limits]\nframe_max_bytes = 1023", "limits.frame_max_bytes: expected a whole number >= 1024"),
        ("[limits]\nframe_max_bytes = 16777217", "limits.frame_max_bytes: expected a whole number <= 16777216"),
        ("[limits]\nconnections_per_container = 0", "limits.connections_per_container: expected a whole number >= 1"),
        ("[limits]\ndrain_seconds = 0", "limits.drain_seconds: expected a number > 0.0"),
        ("[limits]\ndrain_seconds = -1", "limits.drain_seconds: expected a number > 0.0"),
        ("[limits]\ndrain_seconds = nan", "limits.drain_seconds: expected a number > 0.0"),
        ("[limits]\ndrain_seconds = inf", "limits.drain_seconds: expected a number <= 3600.0"),
        ("[limits]\nread_seconds = true", "limits.read_seconds: expected a number, got true or false"),
        ('[log]\nlevel = "loud"', "log.level: unknown value 'loud'; known: debug, info, warning, error"),
    ],
)
def test_a_wrong_value_is_named_by_its_key(path: Path, text: str, expected: str) -> None:
    assert refusal(path, text) == expected


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://u:hunter2@db/x",
        "postgresql://u@db/x?password=hunter2",
        "postgresql://u@db/x?p%61ssword=hunter2",
        "postgresql://u@db/x?sslpassword=hunter2",
    ],
)
def test_a_dsn_with_a_password_has_no_place_in_the_file(path: Path, dsn: str) -> None:
    message = refusal(path, f'store = "{dsn}"')
    assert message.startswith("store: the DSN holds a password; put it into a variable: store = { env = ")
    assert "hunter2" not in message


@pytest.mark.parametrize(
    "store", ["", "postgre", "host=db password=hunter2", "mysql://u:hunter2@db/x", "postgresql://u:hunter2@[db/x"]
)
def test_what_is_no_store_is_refused_without_showing_it(path: Path, store: str) -> None:
    message = refusal(path, f'store = "{store}"')
    assert message.startswith("store: ")
    assert "postgresql://" in message
    assert "hunter2" not in message


def test_a_variable_that_is_not_set_is_named(path: Path) -> None:
    expected = "store.env: the variable 'DSN' is not set; set it to a DSN"
    assert refusal(path, 'store = { env = "DSN" }') == expected
    assert refusal(path, 'store = { env = "DSN" }', DSN="") == expected


@pytest.mark.parametrize("key", ["run_dir", "state_dir"])
@pytest.mark.parametrize("value", ["run", "./run", "../run", "", "~/run"])
def test_a_directory_must_be_absolute(path: Path, key: str, value: str) -> None:
    assert refusal(path, f'{key} = "{value}"') == f"{key}: {value!r} is no absolute path"


@pytest.mark.parametrize("value", ["two words", "ü", "x" * 256, "tab\\t"])
def test_a_host_id_is_one_word(path: Path, value: str) -> None:
    assert refusal(path, f'host_id = "{value}"').startswith("host_id: must be 1 to 255 printable ASCII characters")


def test_exactly_one_forge_is_the_default(path: Path) -> None:
    second = '[[forge]]\nprovider = "github"\nhost = "ghe.example"\nbase_url = "https://ghe.example/api/v3"\n'
    second += 'author = { env = "X" }\n'
    assert refusal(path, FORGE + second + "default = true\n") == "forge: exactly one must have default = true, 2 have"
    none = FORGE.replace("default = true\n", "")
    assert refusal(path, none + second) == "forge: exactly one must have default = true, 0 have"


def test_a_forge_stands_once(path: Path) -> None:
    again = FORGE.replace("default = true\n", "")
    assert refusal(path, FORGE + again) == "forge[1]: github at github.com is configured twice"


def test_a_forge_needs_a_host(path: Path) -> None:
    assert refusal(path, FORGE + 'host = ""\n').startswith("forge[0].host: '' is no host name")


def test_another_hosts_token_never_goes_to_the_usual_url(path: Path) -> None:
    assert (
        refusal(path, FORGE + 'host = "ghe.example"\n') == "forge[0].base_url: missing for host 'ghe.example'; set both"
    )


@pytest.mark.parametrize("provider", ["gitlab", "forgejo", "githb"])
def test_a_provider_that_is_not_there_is_named(path: Path, provider: str) -> None:
    message = refusal(path, f'[[forge]]\nprovider = "{provider}"\ndefault = true')
    assert message.startswith(f"forge[0].provider: {provider!r} is not there yet; this version has github, linear")


APP = 'app_id = 4711, installation_id = 99, key_file = "/k"'


@pytest.mark.parametrize(
    ("place", "what"),
    [
        ("{ app_id = 4711 }", ".installation_id: missing; an App has"),
        ("{ app_id = 4711, installation_id = 99 }", ".key_file: missing; an App has"),
        ('{ installation_id = 99, key_file = "/k" }', ": an App has exactly one of app_id and client_id"),
        (f'{{ {APP}, client_id = "Iv1.x" }}', ": an App has exactly one of app_id and client_id"),
        ('{ client_id = "Iv1é", installation_id = 99, key_file = "/k" }', ".client_id: must be printable ASCII"),
        ('{ app_id = 1, installation_id = 1, key_file = "k" }', ".key_file: 'k' is no absolute path"),
        (f'{{ {APP}, env = "X" }}', ": give exactly one of"),
        ('{ command = ["/bin/x"], file = "/x" }', ": give exactly one of"),
        ('{ command = ["tokens"] }', ".command: 'tokens' is no absolute path"),
        ('{ command = ["", "x"] }', ".command: '' is no absolute path"),
        ('{ command = ["/bin/x", "a\\u0000b"] }', ".command: holds a NUL"),
        ("{ command = [] }", ": give exactly one of"),
        ('{ env = "X", refresh_seconds = 60 }', ".refresh_seconds: is for a command"),
        ('{ command = ["/bin/x"], refresh_seconds = 0 }', ".refresh_seconds: expected a number >= 1"),
        ("{ app_id = 0 }", ".app_id: expected a whole number >= 1"),
        ('{ app_key = "x" }', ".app_key: unknown key"),
    ],
)
def test_a_place_that_makes_no_sense_is_named(path: Path, place: str, what: str) -> None:
    told = refusal(path, f'[[forge]]\nprovider = "github"\ndefault = true\nauthor = {place}\n')
    assert told.startswith(f"forge[0].author{what.replace('`', '')}")


def test_a_command_and_an_app_are_places(path: Path) -> None:
    (forge,) = load(
        path,
        '[[forge]]\nprovider = "github"\ndefault = true\n'
        'author = { command = ["/bin/x", "y"], refresh_seconds = 60 }\n'
        f"reviewer = {{ {APP} }}\n",
    ).forge
    assert forge.author == TokenPlace(command=["/bin/x", "y"], refresh_seconds=60)
    assert forge.reviewer == TokenPlace(app_id=4711, installation_id=99, key_file="/k")
    assert [place.issuer for place in (forge.author, forge.reviewer)] == ["", "4711"]
    assert TokenPlace(client_id="Iv1.x").issuer == "Iv1.x"


@pytest.mark.parametrize("role", ["author", "reviewer"])
@pytest.mark.parametrize("place", ["{}", '{ file = "/x", env = "X" }', '{ file = "" }'])
def test_a_role_has_exactly_one_place(path: Path, role: str, place: str) -> None:
    text = f'[[forge]]\nprovider = "github"\ndefault = true\n{role} = {place}\n'
    assert (
        refusal(path, text, **TOKENS)
        == f"forge[0].{role}: give exactly one of file, env, command, and app_id with what belongs to it"
    )


def test_a_forge_without_an_author_says_where_one_may_come_from(path: Path) -> None:
    message = refusal(path, '[[forge]]\nprovider = "github"\ndefault = true')
    assert message == 'forge[0].author: missing; write author = { file = "…" }, or set GITHUB_FORGE_TOKEN'


def test_a_configuration_built_in_code_is_checked_alike() -> None:
    with pytest.raises(ConfigError, match=r"^here: run_dir: 'x' is no absolute path$"):
        check_config(Config(run_dir="x"), "here", {})


def test_the_largest_frame_must_fit_into_what_is_held_of_all(path: Path) -> None:
    assert load(path, "[limits]\nframe_max_bytes = 2048\nbodies_max_bytes = 2048").limits.bodies_max_bytes == 2048
    assert refusal(path, "[limits]\nframe_max_bytes = 2049\nbodies_max_bytes = 2048") == (
        "limits.bodies_max_bytes: must be at least frame_max_bytes, 2049, or the largest frame waits for ever"
    )


# --- Linear

LINEAR = FORGE + '[[forge]]\nprovider = "linear"\n'


def linear_of(path: Path, text: str = "", **variables: str) -> ForgeConfig:
    path.write_text(LINEAR + text)
    return load_config(path, {**TOKENS, **variables}).forge[1]


def test_a_linear_forge_has_its_own_host_url_and_usual_variable(path: Path) -> None:
    forge = linear_of(path, LINEAR_FORGE_TOKEN="lin_api_x")
    assert (forge.provider, forge.host, forge.base_url) == ("linear", "linear.app", "https://api.linear.app")
    assert forge.author == TokenPlace(env="LINEAR_FORGE_TOKEN")
    assert forge.create_as_user == "Compass"


@pytest.mark.parametrize("secret", ['client_secret_file = "/run/secret"', 'client_secret_env = "SECRET"'])
def test_a_linear_forge_takes_an_oauth_application(path: Path, secret: str) -> None:
    author = linear_of(path, f'author = {{ client_id = "c-1", {secret} }}').author
    assert author is not None
    assert author.client_id == "c-1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 'forge[1].author: missing; write author = { file = "…" }, or set LINEAR_FORGE_TOKEN'),
        ("default = true", "forge[1].default: only a GitHub forge can be the default; remove it here"),
        ('host = "x.example"', "forge[1].host: of Linear it is always linear.app; remove it"),
        ('reviewer = { env = "X" }', "forge[1].reviewer: Linear has no reviews; remove it"),
        (
            'display_icon_url = "http://x.example/i.png"',
            "forge[1].display_icon_url: must be an https URL, beside a create_as_user",
        ),
        (
            'create_as_user = ""\ndisplay_icon_url = "https://x.example/i.png"',
            "forge[1].display_icon_url: must be an https URL, beside a create_as_user",
        ),
        ('create_as_user = "a\\nb"', "forge[1].create_as_user: must be one printable line"),
        (
            'author = { file = "/x", env = "X" }',
            "forge[1].author: give exactly one of file, env, command, and client_id with its secret",
        ),
        (
            "author = { app_id = 1 }",
            "forge[1].author: holds words of a GitHub App, which Linear has not; remove them",
        ),
        (
            'author = { client_id = "c" }',
            "forge[1].author: an OAuth application has client_id, and client_secret_file or client_secret_env",
        ),
        (
            'author = { client_secret_env = "X" }',
            "forge[1].author: an OAuth application has client_id, and client_secret_file or client_secret_env",
        ),
        (
            'author = { client_id = "a:b", client_secret_env = "X" }',
            "forge[1].author.client_id: must be printable ASCII, as Linear shows it",
        ),
        (
            'author = { client_id = "a", client_secret_file = "x" }',
            "forge[1].author.client_secret_file: 'x' is no absolute path",
        ),
    ],
)
def test_a_linear_forge_that_makes_no_sense_is_refused(path: Path, text: str, words: str) -> None:
    assert refusal(path, LINEAR + text, **TOKENS) == words


def test_a_github_forge_takes_no_words_of_linears(path: Path) -> None:
    text = '[[forge]]\nprovider = "github"\ndefault = true\nauthor = { env = "X", bearer = true }\n'
    assert (
        refusal(path, text) == "forge[0].author: holds words of a Linear credential, which GitHub has not; remove them"
    )
