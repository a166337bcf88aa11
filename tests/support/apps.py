"""A GitHub App for tests: its key in a file, and itself on a bundled forge."""

from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

APP_ID = 4711
CLIENT_ID = "Iv1.0123456789abcdef"
INSTALLATION_ID = 99


@cache
def _key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def key_file(folder: Path, name: str = "app.pem") -> Path:
    """The App's private key as GitHub hands it out: PKCS#1 in PEM."""
    path = folder / name
    path.write_bytes(
        _key().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    path.chmod(0o600)
    return path


def app_seed(**more: Any) -> dict[str, Any]:
    """The App as a forge's seed has it: ``compass``, installed on ``acme``."""
    public = (
        _key().public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return {
        "id": APP_ID,
        "slug": "compass",
        "client_id": CLIENT_ID,
        "public_key": public.decode(),
        "installations": [{"id": INSTALLATION_ID, "account": "acme"}],
        **more,
    }
