"""TLS as every forge is spoken to: verified, 1.2 at least, and nothing of it taken from the environment."""

import ssl

import certifi

from compass_forged.errors import ConfigError


def client_context(ca_file: str | None) -> ssl.SSLContext:
    """A context that trusts the public authorities, or those in ``ca_file`` and no other.

    It is not made with ``ssl.create_default_context``, which writes the keys of every connection into the file that
    ``SSLKEYLOGFILE`` names.

    Raises:
        ConfigError: the CA file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificate and host name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(cafile=ca_file or certifi.where())
    except (OSError, ValueError) as error:
        raise ConfigError(f"ca_file: {ca_file!r} is no readable PEM file of certificates") from error
    return context
