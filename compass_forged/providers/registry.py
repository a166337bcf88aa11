"""Which forges are configured: (provider, host) to the clients that act there. Fixed once the daemon runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from compass_forged.errors import CallError, ConfigError
from compass_forged.ports import Provider
from compass_forged.providers.identity import Identities
from compass_forged.wire.schema import ForgeSelector

KNOWN_PROVIDERS = frozenset({"github", "linear"})
_SHOWN_CHARS = 64


@dataclass(frozen=True, slots=True)
class Entry:
    """One configured forge. It exists only with an author's credential.

    Attributes:
        provider: the provider's word, such as ``github``.
        host: the forge's host as coordinates have it.
        author: writes and reads everything but reviews.
        reviewer: submits reviews; None where no reviewer is configured.
        identities: which accounts the two are; None where nobody has looked, as with a scripted provider.
    """

    provider: str
    host: str
    author: Provider
    reviewer: Provider | None = None
    identities: Identities | None = None

    async def check_reviewer(self) -> None:
        """Find out whether a review may be sent: whether author and reviewer are known to be two accounts.

        Raises:
            CallError, ForgeError: as ``Identities.check_reviewer``.
        """
        if self.identities is not None:
            await self.identities.check_reviewer()


class Registry:
    """The configured forges. Lookups are plain and never touch the network."""

    def __init__(self, entries: Sequence[Entry], default: tuple[str, str] | None = None) -> None:
        """Index the entries.

        Args:
            entries: in the order of the configuration: the first of a provider has its default host.
            default: (provider, host) of the entry for calls that name no forge; None is the first GitHub entry.

        Raises:
            ConfigError: the operator's to mend: an unknown or repeated forge, or a default that is no GitHub entry.
        """
        self._entries: dict[tuple[str, str], Entry] = {}
        self._default_hosts: dict[str, str] = {}
        for entry in entries:
            self._add(entry)
        self._default = self._find_default(default)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, in the order of the configuration."""
        return tuple(self._entries.values())

    @property
    def default(self) -> Entry:
        """The entry for calls that name no forge."""
        return self._default

    def default_host(self, provider: str) -> str:
        """The host meant where a call names only its provider; "" for a provider that is not configured."""
        return self._default_hosts.get(provider.casefold(), "")

    def find(self, selector: ForgeSelector | None) -> Entry | None:
        """The entry that a call addresses, or None."""
        if selector is None:
            return self._default
        provider = selector.provider.casefold()
        host = selector.host.casefold() or self._default_hosts.get(provider, "")
        return self._entries.get((provider, host))

    def resolve(self, selector: ForgeSelector | None) -> Entry:
        """The entry that a call addresses; never another one in its stead.

        Raises:
            CallError: ``not_found`` naming the coordinate.
        """
        if selector is None:
            return self._default
        entry = self.find(selector)
        if entry is None:
            raise CallError("not_found", f"forge: {_shown(selector)} is not configured here", outcome="not_sent")
        return entry

    def _add(self, entry: Entry) -> None:
        key = (entry.provider.casefold(), entry.host.casefold())
        if key[0] not in KNOWN_PROVIDERS:
            raise ConfigError(f"forge: provider {key[0]!r} is not supported yet; use one of github, linear")
        if key in self._entries:
            raise ConfigError(f"forge: {key[0]} at {key[1]} is configured twice; remove one of them")
        self._entries[key] = entry
        self._default_hosts.setdefault(*key)

    def _find_default(self, default: tuple[str, str] | None) -> Entry:
        if default is None:
            found = next((entry for (provider, _), entry in self._entries.items() if provider == "github"), None)
        else:
            found = self._entries.get((default[0].casefold(), default[1].casefold()))
        if found is None or found.provider.casefold() != "github":
            raise ConfigError("forge: exactly one GitHub entry must be the default; configure one with its credential")
        return found


def _shown(selector: ForgeSelector) -> str:
    """A coordinate as the agent wrote it, bounded and in printable ASCII."""
    text = f"{selector.provider}:{selector.host}" if selector.host else selector.provider
    return ascii(text[:_SHOWN_CHARS])[1:-1][: 2 * _SHOWN_CHARS]
