"""Where a forge's API lives, and what lies inside it. Pure.

A request is told as decoded path segments and query pairs; only here do they become a URL, and only here is a URL that
a forge handed out taken apart again. What leaves (scheme, host, port) and path of the entry is not a place of ours.
"""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from compass_forged.errors import ConfigError

Query: TypeAlias = tuple[tuple[str, str], ...]

_DEFAULT_PORTS = {"https": 443, "http": 80}
_HOST_NAME = re.compile(r"(?!-)[a-z0-9-]{1,63}(?:\.(?!-)[a-z0-9-]{1,63})*", re.ASCII)
# A last label that reads as a number makes resolvers take the whole name for an address ("127.1", "0x7f000001").
_NUMERIC_LABEL = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)", re.ASCII)


_LOCATION_MAX_CHARS = 8192


@dataclass(frozen=True, slots=True)
class BaseUrl:
    """The root of one forge's API: ``https://api.github.com``, or ``https://HOST/api/v3``.

    Attributes:
        scheme: ``https``, or ``http`` on loopback.
        host: a lower-case host name, or an address without brackets.
        port: always explicit.
        path: the segments below which every request stays.
    """

    scheme: str
    host: str
    port: int
    path: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "BaseUrl":
        """Read a base URL from the configuration.

        Raises:
            ConfigError: the operator's to mend; says what is wrong with it.
        """
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError as error:
            raise ConfigError("base_url: not a URL; write it like https://api.github.com") from error
        host = (parts.hostname or "").lower()
        problem = _problem(text, parts, host)
        if problem:
            raise ConfigError(f"base_url: {problem}")
        segments = tuple(part for part in parts.path.split("/") if part)
        return cls(parts.scheme, host, port or _DEFAULT_PORTS[parts.scheme], segments)

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: the only place to which a token of this entry may go."""
        return (self.scheme, self.host, self.port)

    def target(self, path: Sequence[str], query: Query = ()) -> str:
        """The request target below this base: each segment and value percent-encoded whole.

        Raises:
            ValueError: ours to mend: a segment that is empty or a dot segment would name another path.
        """
        segments = (*self.path, *path)
        if any(segment in {"", ".", ".."} for segment in segments):
            raise ValueError("a path segment is empty or a dot segment")
        encoded = "/" + "/".join(quote(segment, safe="") for segment in segments)
        if not query:
            return encoded
        return encoded + "?" + "&".join(f"{quote(key, safe='')}={quote(value, safe='')}" for key, value in query)

    def url(self, target: str) -> str:
        """The whole URL of a target that ``target`` built; a default port is left out, as servers expect."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{target}"

    def locate(self, location: str) -> tuple[tuple[str, ...], Query] | None:
        """Path segments and query of a URL that the forge handed out; None if it is not a place below this base."""
        if len(location) > _LOCATION_MAX_CHARS:
            return None
        try:
            parts = urlsplit(location)
            port = parts.port
            query = tuple(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        except ValueError:
            return None
        path = tuple(unquote(part, errors="replace") for part in parts.path.split("/")[1:])
        if parts.scheme or parts.netloc:
            origin = (parts.scheme, (parts.hostname or "").lower(), port or _DEFAULT_PORTS.get(parts.scheme, 0))
            if origin != self.origin or "@" in parts.netloc:
                return None
        own = len(self.path)
        if path[:own] != self.path or len(path) == own or any(part in {"", ".", ".."} for part in path):
            return None
        return path[own:], query


def _problem(text: str, parts: SplitResult, host: str) -> str:  # noqa: PLR0911 -- one return for each problem
    """What makes ``text`` unfit to be a base URL; "" if nothing does."""
    if not text.isascii() or not text.isprintable() or " " in text:
        return "holds a character that is not printable ASCII"
    if parts.scheme not in _DEFAULT_PORTS:
        return "must begin with https:// (http:// is for loopback only)"
    if "@" in parts.netloc or parts.query or parts.fragment or "?" in text or "#" in text:
        return "must hold no user, password, query or fragment; credentials are configured beside it"
    if "%" in parts.path or any(part in {".", ".."} for part in parts.path.split("/")):
        return "must have a plain path, such as /api/v3"
    if not _is_host(host):
        return "has no usable host; write a host name or a full IP address"
    if parts.scheme == "http" and not _is_loopback(host):
        return f"http:// is for loopback only, since it would show the token on the network; use https://{host}"
    return ""


def _is_host(host: str) -> bool:
    if _address(host) is not None:
        return True
    return bool(_HOST_NAME.fullmatch(host)) and not _NUMERIC_LABEL.fullmatch(host.rpartition(".")[2])


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
