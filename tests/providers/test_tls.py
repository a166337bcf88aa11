import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from compass_forged.errors import ConfigError
from compass_forged.providers.http import HttpTransport, TransportFailure
from compass_forged.providers.tls import client_context
from compass_forged.providers.urls import BaseUrl
from tests.support.certificates import Authority
from tests.support.raw_http import OK, WRITE, exchange


@asynccontextmanager
async def tls_server(context: ssl.SSLContext, received: list[bytes]) -> AsyncIterator[BaseUrl]:
    async def serve(stream: trio.SocketStream) -> None:
        tls = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        try:
            received.append(bytes(await tls.receive_some()))
            await tls.send_all(OK)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await trio.lowlevel.checkpoint()  # the client has turned away

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, serve, listeners)
        yield BaseUrl.parse(f"https://127.0.0.1:{listeners[0].socket.getsockname()[1]}")
        nursery.cancel_scope.cancel()


async def test_a_named_authority_is_trusted(tmp_path: Path) -> None:
    authority, received = Authority(tmp_path), list[bytes]()
    async with (
        tls_server(authority.server(), received) as base,
        HttpTransport(base, ca_file=str(authority.ca_file)) as transport,
    ):
        assert (await exchange(transport, WRITE)).status == 200
    assert b"Bearer canary" in received[0]


@pytest.mark.parametrize("flaw", ["unknown authority", "expired", "another name", "old protocol"])
async def test_a_forge_that_cannot_be_verified_is_sent_nothing(
    tmp_path: Path, flaw: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, received, told = Authority(tmp_path), list[bytes](), list[str]()
    context = authority.server(
        address="127.0.0.2" if flaw == "another name" else "127.0.0.1", expired=flaw == "expired"
    )
    if flaw == "old protocol":
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))  # what the environment trusts is of no account

    async def sending() -> None:
        await trio.lowlevel.checkpoint()
        told.append("sending")

    ca_file = None if flaw == "unknown authority" else str(authority.ca_file)
    async with tls_server(context, received) as base, HttpTransport(base, ca_file=ca_file) as transport:
        with pytest.raises(TransportFailure, match="cannot connect") as failure:
            await exchange(transport, WRITE, on_sending=sending)
        assert not failure.value.sent
        assert transport.idle_connections == 0
    assert told == []
    assert received == []


async def test_no_keys_of_connections_are_written_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
    authority = Authority(tmp_path)
    async with (
        tls_server(authority.server(), []) as base,
        HttpTransport(base, ca_file=str(authority.ca_file)) as transport,
    ):
        await exchange(transport)
    assert not keys.exists()


def test_the_public_authorities_are_trusted_and_verified_where_none_is_named() -> None:
    context = client_context(None)
    assert len(context.get_ca_certs()) > 50
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_without_certificates_is_named(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "none.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match=r"ca_file: '.*none.pem' is no readable PEM"):
        client_context(str(file))
