"""Where a Postgres is: a libpq connection string, either form, that shows itself without its password. No I/O."""

import re
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from compass_forged.errors import ConfigError
from compass_forged.observability import register_secret

_SCHEMES: Final = ("postgresql", "postgres")
# One `key = value` of libpq's keyword form; a quoted value may hold \' and \\.
_PAIR: Final = re.compile(
    r"\s*(?P<key>[a-z_]+)\s*=\s*(?:'(?P<quoted>(?:[^'\\]|\\.)*)'|(?P<bare>(?:[^\s'\\]|\\.)*))(?=\s|$)"
)
_KEY: Final = re.compile(r"[A-Za-z0-9_.]+")
# One host or several, each with a port or without; a socket's directory may stand percent-encoded.
_HOST: Final = r"(?:[A-Za-z0-9._%-]*|\[[0-9A-Fa-f:.%]+\])(?::[0-9]+)?"
_HOSTS: Final = re.compile(rf"{_HOST}(?:,{_HOST})*")
_UNREADABLE: Final = (
    "the DSN of the store cannot be read: write postgresql://user@host:port/database, or host=… dbname=… user=…"
)


@dataclass(frozen=True, slots=True)
class ConnectParams:
    """A place to connect to.

    Attributes:
        uri: the whole connection string as a URI, password included: for the driver alone, never shown.
        shown: the place as it may stand in a message: ``user@host:port/database``.
    """

    uri: str = field(repr=False)
    shown: str

    @classmethod
    def parse(cls, dsn: str) -> "ConnectParams":
        """Read an operator's connection string: a URI, or libpq's keyword form.

        A password in it is cut out of everything that is logged from then on.

        Raises:
            ConfigError: the operator's to mend; the message holds nothing of the string.
        """
        uri = dsn.strip() if "://" in dsn else _from_pairs(dsn)
        try:
            parts = urlsplit(uri)
        except ValueError:
            raise ConfigError(_UNREADABLE) from None
        userinfo, _, hosts = parts.netloc.rpartition("@")
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        # A password that was not percent-encoded tears the string elsewhere than meant; what is then taken for the
        # host would be half the password.
        torn = "@" in parts.path or parts.fragment or not all(map(_KEY.fullmatch, query)) or not _HOSTS.fullmatch(hosts)
        if torn or parts.scheme not in _SCHEMES:
            raise ConfigError(_UNREADABLE)
        user, _, password = userinfo.partition(":")
        register_secret(unquote(password) or query.get("password", ""))
        user = unquote(user) or query.get("user", "")
        port = query.get("port", "")
        host = unquote(hosts) or query.get("host", "localhost") + (f":{port}" if port else "")
        database = unquote(parts.path.lstrip("/")) or query.get("dbname", "") or user
        shown = f"{user}@{host}/{database}" if user else f"{host}/{database}"
        return cls(uri, "".join(c if c.isprintable() else "?" for c in shown))

    @classmethod
    def on_socket(cls, directory: str, *, user: str, password: str, database: str) -> "ConnectParams":
        """A server that listens on a Unix socket in ``directory``, on the default port's name."""
        query = urlencode({"host": directory, "port": "5432", "user": user, "password": password}, quote_via=quote)
        return cls.parse(f"postgresql:///{quote(database)}?{query}")


DsnOrParams: TypeAlias = str | ConnectParams


def as_params(place: DsnOrParams) -> ConnectParams:
    """``place`` as parameters; a string is read as an operator's DSN."""
    return place if isinstance(place, ConnectParams) else ConnectParams.parse(place)


def _from_pairs(dsn: str) -> str:
    """Turn the keyword form into a URI, which is the one form that the driver takes."""
    pairs: dict[str, str] = {}
    position = 0
    text = dsn.strip()
    while position < len(text):
        match = _PAIR.match(text, position)
        if match is None:
            raise ConfigError(_UNREADABLE)
        value = match["quoted"] if match["quoted"] is not None else match["bare"]
        pairs[match["key"]] = re.sub(r"\\(.)", r"\1", value)
        position = match.end()
    if not pairs:
        raise ConfigError(_UNREADABLE)
    return "postgresql:///?" + urlencode(pairs, quote_via=quote)
