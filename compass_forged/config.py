"""The daemon's configuration: one TOML file, checked as a whole before anything starts.

Unknown keys are refused with the nearest known one. Secrets never stand in the file: a credential is the name of a
file, of an environment variable, or of a command. Every limit and deadline has its unit in its name.
"""

import os
import re
import socket
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Final, Literal, get_args
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import Meta, Struct, field

from compass_forged.errors import ConfigError
from compass_forged.misfit import TOML_KINDS, explain

CONFIG_VARIABLE: Final = "FORGED_CONFIG"
DEFAULT_PATH: Final = Path("/etc/compass-forged/config.toml")
USUAL_VARIABLES: Final[Mapping[tuple[str, str], str]] = {
    ("github", "author"): "GITHUB_FORGE_TOKEN",
    ("github", "reviewer"): "GITHUB_FORGE_REVIEWER_TOKEN",
    ("linear", "author"): "LINEAR_FORGE_TOKEN",
}
"""The variables that a role takes its token from where no file names another place."""

_GITHUB_HOST: Final = "github.com"
_GITHUB_URL: Final = "https://api.github.com"
_LINEAR_HOST: Final = "linear.app"
_LINEAR_URL: Final = "https://api.linear.app"
_PROVIDERS: Final = ("github", "linear")
_DSN_SECRETS: Final = frozenset({"password", "sslpassword"})
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(?::[0-9]{1,5})?", re.ASCII)
_RUN_DIR_MAX_BYTES: Final = 80
"""A socket's path has 107 bytes, and ``/containers/NAME/forge.sock`` follows."""
_HOST_ID: Final = re.compile(r"[!-~]{1,255}", re.ASCII)

_Seconds = Annotated[float, Meta(gt=0, le=3600)]
_Count = Annotated[int, Meta(ge=1, le=1_000_000)]


class StoreVariable(Struct, forbid_unknown_fields=True, frozen=True):
    """``store = { env = "NAME" }``: the variable that holds the DSN."""

    env: str


class TokenPlace(Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """Where a role's token comes from: exactly one of ``file``, ``env``, ``command`` and an application.

    GitHub's kind of application is an App with a private key, Linear's an OAuth application with a secret.

    Attributes:
        file: a file that holds the token.
        env: the name of a variable that holds it.
        command: a program's absolute path and its arguments; it prints the token.
        refresh_seconds: after how long the command is run again.
        app_id: the App's number; or ``client_id``.
        client_id: the App's client id; or ``app_id``. Of Linear: the OAuth application's.
        installation_id: the installation whose tokens are used.
        key_file: the App's private key.
        client_secret_file: a file that holds the OAuth application's secret; or ``client_secret_env``.
        client_secret_env: the name of a variable that holds it.
        bearer: of Linear: whether the token is one of OAuth, where its prefix does not tell.
    """

    file: str = ""
    env: str = ""
    command: list[str] = field(default_factory=list)
    refresh_seconds: Annotated[float, Meta(ge=1, le=86_400)] | None = None
    app_id: Annotated[int, Meta(ge=1)] | None = None
    client_id: str = ""
    installation_id: Annotated[int, Meta(ge=1)] | None = None
    key_file: str = ""
    client_secret_file: str = ""
    client_secret_env: str = ""
    bearer: bool = False

    @property
    def issuer(self) -> str:
        """How the App names itself: its client id, else its number; "" for what is no App."""
        return self.client_id or ("" if self.app_id is None else str(self.app_id))


class ForgeConfig(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One ``[[forge]]``: a provider at a host, and where its roles' tokens come from.

    Attributes:
        provider: ``github`` or ``linear``.
        default: whether calls that name no forge mean this one; of GitHub's exactly one.
        host: as coordinates have it; of Linear always ``linear.app``.
        base_url: where the API is.
        ca_file: a PEM file to trust instead of the public authorities; "" for those.
        author: writes and reads.
        reviewer: reviews; Linear has none.
        create_as_user: of Linear: the name that everything is written under, where the credential is an application's.
        display_icon_url: of Linear: the picture beside that name.
    """

    provider: str
    default: bool = False
    host: str = _GITHUB_HOST
    base_url: str = _GITHUB_URL
    ca_file: str = ""
    author: TokenPlace | None = None
    reviewer: TokenPlace | None = None
    create_as_user: Annotated[str, Meta(max_length=64)] = "Compass"
    display_icon_url: Annotated[str, Meta(max_length=512)] = ""


class Limits(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """``[limits]``: what a container may ask of the daemon, and how long things may take."""

    frame_max_bytes: Annotated[int, Meta(ge=1024, le=16 << 20)] = 1 << 20
    connections_per_container: _Count = 16
    calls_per_connection: _Count = 64
    calls_per_container: _Count = 128
    outbox_max_bytes: Annotated[int, Meta(ge=4096, le=1 << 30)] = 1 << 20
    backlog_max_bytes: Annotated[int, Meta(ge=1 << 20, le=1 << 30)] = 64 << 20
    bodies_max_bytes: Annotated[int, Meta(ge=1024, le=1 << 40)] = 128 << 20
    idle_seconds: Annotated[float, Meta(ge=0, le=7 * 86_400)] = 0.0
    memory_max_bytes: Annotated[int, Meta(ge=0, le=1 << 50)] = 0
    frame_seconds: _Seconds = 10.0
    send_seconds: _Seconds = 10.0
    read_seconds: _Seconds = 15.0
    write_seconds: _Seconds = 30.0
    grace_seconds: _Seconds = 30.0
    record_seconds: _Seconds = 10.0
    attribution_seconds: _Seconds = 0.2
    drain_seconds: _Seconds = 20.0
    store_connections: Annotated[int, Meta(ge=1, le=64)] = 4


class BudgetConfig(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """``[budget]``: the gate in front of each credential."""

    reserve: Annotated[int, Meta(ge=0, le=5000)] = 10
    points_per_minute: Annotated[int, Meta(ge=5, le=1_000_000)] = 900
    creations_per_minute: _Count = 80
    creations_per_hour: _Count = 500
    write_burst: _Count = 10
    write_interval_seconds: Annotated[float, Meta(ge=0, le=60)] = 1.0


class LogConfig(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """``[log]``: ``auto`` is coloured on a terminal and JSON elsewhere."""

    format: Literal["auto", "json", "console"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"


class Config(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The whole configuration."""

    run_dir: str = "/run/compass-forged"
    state_dir: str = "/var/lib/compass-forged"
    host_id: str = ""
    store: str | StoreVariable = "embedded"
    forge: list[ForgeConfig] = field(default_factory=list)
    limits: Limits = field(default_factory=Limits)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    log: LogConfig = field(default_factory=LogConfig)

    @property
    def host(self) -> str:
        """Which host this daemon is in the store: ``host_id``, or the machine's name."""
        return self.host_id or socket.gethostname()


def find_config(given: Path | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The configuration file: the one given, else ``FORGED_CONFIG``'s, else the default place's if there is one."""
    if given is not None:
        return given
    if named := environ.get(CONFIG_VARIABLE):
        return Path(named)
    return DEFAULT_PATH if DEFAULT_PATH.is_file() else None


def read_config(path: Path | None) -> Config:
    """Read a configuration as it is written; without a file, the defaults.

    Enough for whoever only needs to know where the daemon is: nothing is asked of the environment.

    Raises:
        ConfigError: one line naming the file, the key and the mend.
    """
    if path is None:
        return Config()
    try:
        with path.open("rb") as file:
            raw = tomllib.load(file)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; write one, or name another with --config") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; mend it there, or name another file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}; mend that place") from error
    _refuse_unknown(raw, Config, str(path), "")
    try:
        return msgspec.convert(raw, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {_plain(error)}") from error


def load_config(path: Path | None, environ: Mapping[str, str] = os.environ) -> Config:
    """Read and check a configuration; without a file, the defaults.

    Raises:
        ConfigError: as ``read_config``.
    """
    return check_config(read_config(path), _where(path), environ)


def load_store_config(path: Path | None, environ: Mapping[str, str] = os.environ) -> Config:
    """Read a configuration and check what concerns the store alone.

    Raises:
        ConfigError: as ``read_config``.
    """
    config = read_config(path)
    _check_store(config, _where(path), environ)
    return config


def _where(path: Path | None) -> str:
    return str(path) if path is not None else "configuration"


def check_config(config: Config, where: str, environ: Mapping[str, str] = os.environ) -> Config:
    """Check what types cannot say, and give roles without a place their usual variables.

    Raises:
        ConfigError: as ``load_config``.
    """
    _check_store(config, where, environ)
    if config.limits.bodies_max_bytes < config.limits.frame_max_bytes:
        raise ConfigError(
            f"{where}: limits.bodies_max_bytes: must be at least frame_max_bytes, {config.limits.frame_max_bytes}, "
            "or the largest frame waits for ever"
        )
    if len(os.fsencode(config.run_dir)) > _RUN_DIR_MAX_BYTES:
        raise ConfigError(f"{where}: run_dir: over {_RUN_DIR_MAX_BYTES} bytes leaves no room for sockets' names")
    forges = [_with_usual(forge, where, index, environ) for index, forge in enumerate(_listed(config, environ))]
    _check_forges(forges, where)
    return msgspec.structs.replace(config, forge=forges)


def _check_store(config: Config, where: str, environ: Mapping[str, str]) -> None:
    if isinstance(config.store, str) and config.store not in {"embedded", "memory"}:
        _check_dsn(config.store, where)
    if isinstance(config.store, StoreVariable) and not environ.get(config.store.env):
        raise ConfigError(f"{where}: store.env: the variable {config.store.env!r} is not set; set it to a DSN")
    if _HOST_ID.fullmatch(config.host) is None:
        raise ConfigError(f"{where}: host_id: must be 1 to 255 printable ASCII characters without spaces; set it")
    for key, value in (("run_dir", config.run_dir), ("state_dir", config.state_dir)):
        if not Path(value).is_absolute():
            raise ConfigError(f"{where}: {key}: {value!r} is no absolute path")


def _listed(config: Config, environ: Mapping[str, str]) -> list[ForgeConfig]:
    """The file's forges; without any, the GitHub one that its usual variable brings to life."""
    if config.forge or not environ.get(USUAL_VARIABLES["github", "author"]):
        return config.forge
    return [ForgeConfig(provider="github", default=True)]


def _with_usual(forge: ForgeConfig, where: str, index: int, environ: Mapping[str, str]) -> ForgeConfig:
    place = f"{where}: forge[{index}]"
    if forge.provider not in _PROVIDERS:
        hint = "" if forge.provider in {"gitlab", "forgejo"} else " (did you misspell it?)"
        raise ConfigError(
            f"{place}.provider: {forge.provider!r} is not there yet; this version has {', '.join(_PROVIDERS)}{hint}"
        )
    if forge.provider == "linear":
        forge = _as_linear(forge, place)
    roles = {"author": forge.author, "reviewer": forge.reviewer}
    for role, given in roles.items():
        # Only the default forge's: a token for one host must not be shown to another.
        usual = _usual(forge, role)
        if given is None and usual and environ.get(usual):
            roles[role] = TokenPlace(env=usual)
        elif given is not None:
            _check_place(given, f"{place}.{role}", forge.provider)
    if roles["author"] is None:
        usual = _usual(forge, "author")
        raise ConfigError(
            f'{place}.author: missing; write author = {{ file = "…" }}' + (f", or set {usual}" if usual else "")
        )
    return msgspec.structs.replace(forge, **roles)


def _usual(forge: ForgeConfig, role: str) -> str:
    """The variable that a role's token is in where the file names no place; "" for none."""
    # Of GitHub's the default forge's alone: a token for one host must not be shown to another. There is one Linear.
    usable = forge.provider == "linear" or forge.default
    return USUAL_VARIABLES.get((forge.provider, role), "") if usable else ""


def _as_linear(forge: ForgeConfig, place: str) -> ForgeConfig:
    """A Linear entry with its own defaults in place of GitHub's."""
    if forge.default:
        raise ConfigError(f"{place}.default: only a GitHub forge can be the default; remove it here")
    if forge.host not in {_GITHUB_HOST, _LINEAR_HOST}:
        raise ConfigError(f"{place}.host: of Linear it is always {_LINEAR_HOST}; remove it")
    if forge.reviewer is not None:
        raise ConfigError(f"{place}.reviewer: Linear has no reviews; remove it")
    icon = urlsplit(forge.display_icon_url)
    if forge.display_icon_url and (icon.scheme != "https" or not icon.hostname or not forge.create_as_user):
        raise ConfigError(f"{place}.display_icon_url: must be an https URL, beside a create_as_user")
    if not forge.create_as_user.isprintable():
        raise ConfigError(f"{place}.create_as_user: must be one printable line")
    base_url = _LINEAR_URL if forge.base_url == _GITHUB_URL else forge.base_url
    return msgspec.structs.replace(forge, host=_LINEAR_HOST, base_url=base_url)


def _check_place(given: TokenPlace, where: str, provider: str) -> None:
    github_app = (given.app_id, given.installation_id, given.key_file)
    oauth_app = (given.client_secret_file, given.client_secret_env)
    is_app = any((*github_app, *oauth_app, given.client_id))
    if sum((bool(given.file), bool(given.env), bool(given.command), is_app)) != 1:
        app = "client_id with its secret" if provider == "linear" else "app_id with what belongs to it"
        raise ConfigError(f"{where}: give exactly one of file, env, command, and {app}")
    if any(github_app if provider == "linear" else (*oauth_app, given.bearer)):
        other = (
            "GitHub App, which Linear has not" if provider == "linear" else "Linear credential, which GitHub has not"
        )
        raise ConfigError(f"{where}: holds words of a {other}; remove them")
    if is_app and provider == "linear":
        _check_oauth(given, where)
    elif is_app:
        _check_app(given, where)
    if given.refresh_seconds is not None and not given.command:
        raise ConfigError(f"{where}.refresh_seconds: is for a command; remove it")
    if any("\0" in word for word in given.command):
        raise ConfigError(f"{where}.command: holds a NUL; remove it")
    program = given.command[0] if given.command else "/"
    files = {"file": given.file, "key_file": given.key_file, "client_secret_file": given.client_secret_file}
    paths = {key: path for key, path in files.items() if path} | {"command": program}
    for key, path in paths.items():
        if not Path(path).is_absolute():
            raise ConfigError(f"{where}.{key}: {path!r} is no absolute path")


def _check_oauth(given: TokenPlace, where: str) -> None:
    if not given.client_id.isascii() or not given.client_id.isprintable() or ":" in given.client_id:
        raise ConfigError(f"{where}.client_id: must be printable ASCII, as Linear shows it")
    if not given.client_id or bool(given.client_secret_file) == bool(given.client_secret_env):
        raise ConfigError(f"{where}: an OAuth application has client_id, and client_secret_file or client_secret_env")


def _check_app(given: TokenPlace, where: str) -> None:
    if (given.app_id is None) == (not given.client_id):
        raise ConfigError(f"{where}: an App has exactly one of app_id and client_id")
    if not given.client_id.isascii() or not given.client_id.isprintable():
        raise ConfigError(f"{where}.client_id: must be printable ASCII, as GitHub shows it")
    for key, value in (("installation_id", given.installation_id), ("key_file", given.key_file)):
        if not value:
            raise ConfigError(f"{where}.{key}: missing; an App has app_id or client_id, installation_id and key_file")


def _check_forges(forges: list[ForgeConfig], where: str) -> None:
    seen: set[tuple[str, str]] = set()
    for index, forge in enumerate(forges):
        key = (forge.provider, forge.host)
        if _HOST.fullmatch(forge.host) is None:
            raise ConfigError(f"{where}: forge[{index}].host: {forge.host!r} is no host name, such as github.com")
        if forge.ca_file and not Path(forge.ca_file).is_absolute():
            raise ConfigError(f"{where}: forge[{index}].ca_file: {forge.ca_file!r} is no absolute path")
        if forge.provider == "github" and forge.host != _GITHUB_HOST and forge.base_url == _GITHUB_URL:
            # Its token would go to a host that it is not for.
            raise ConfigError(f"{where}: forge[{index}].base_url: missing for host {forge.host!r}; set both")
        if key in seen:
            raise ConfigError(f"{where}: forge[{index}]: {forge.provider} at {forge.host} is configured twice")
        seen.add(key)
    defaults = sum(forge.default for forge in forges)
    if forges and defaults != 1:
        raise ConfigError(f"{where}: forge: exactly one must have default = true, {defaults} have")


def _check_dsn(dsn: str, where: str) -> None:
    """Only a DSN without a password may stand in the file. The message shows nothing of it."""
    try:
        parts = urlsplit(dsn)
    except ValueError:  # without its text, which holds the DSN's
        raise ConfigError(f"{where}: store: the DSN is no URL; write postgresql://user@host/database") from None
    if parts.scheme not in {"postgresql", "postgres"}:
        raise ConfigError(f'{where}: store: must be "embedded", "memory", {{ env = "…" }} or a postgresql:// DSN')
    if parts.password is not None or any(key in _DSN_SECRETS for key, _ in parse_qsl(parts.query)):
        raise ConfigError(f'{where}: store: the DSN holds a password; put it into a variable: store = {{ env = "…" }}')


def _refuse_unknown(raw: object, struct: type[Struct], where: str, prefix: str) -> None:
    """Name an unknown key with its nearest known one, all through the file."""
    if not isinstance(raw, dict):
        return
    names = {one.name: one for one in msgspec.structs.fields(struct)}
    for key, value in raw.items():
        if key not in names:
            near = get_close_matches(key, names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(names))}"
            shown = key if key.isprintable() else ascii(key)  # a quoted TOML key may hold a line break
            raise ConfigError(f"{where}: {prefix}{shown}: unknown key{hint}")
        for inner in _structs_in(names[key].type):
            if isinstance(value, list):
                for index, item in enumerate(value):
                    _refuse_unknown(item, inner, where, f"{prefix}{key}[{index}].")
            else:
                _refuse_unknown(value, inner, where, f"{prefix}{key}.")


def _structs_in(kind: object) -> list[type[Struct]]:
    """The Structs that a field's type mentions."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        return [kind]
    return [found for argument in getattr(kind, "__args__", ()) for found in _structs_in(argument)]


def _plain(error: msgspec.ValidationError) -> str:
    """The library's message with the key first: ``limits.drain_seconds: expected a number > 0.0``."""
    key, what = explain(error, TOML_KINDS)
    if key.endswith((".author", ".reviewer")):
        what += '; a credential is named by its place, such as { file = "/run/secrets/github" }'
    elif key == "forge":
        what += "; write [[forge]] over each"
    elif words := get_args(_type_at(key)) if what.startswith("unknown value") else ():
        what += f"; known: {', '.join(words)}"
    return f"{key}: {what}"


def _type_at(key: str) -> object:
    """The type of a key, such as ``log.level``, that stands in no list."""
    kind: object = Config
    for name in key.split("."):
        kind = next(one.type for one in msgspec.structs.fields(_structs_in(kind)[0]) if one.name == name)
    return kind
