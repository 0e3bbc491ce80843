"""The world outside this machine, on loopback: names, a certificate authority, and a server that
does what a test says."""

from __future__ import annotations

import asyncio
import datetime
import functools
import ipaddress
import socket
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpcore2
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from engine.outbound import Limits, Outbound, parse_allowed

PUBLIC = "93.184.216.34"
PUBLIC_6 = "2606:4700:4700::1111"


@dataclass
class Received:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes


Handler = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


async def answer(
    writer: asyncio.StreamWriter, body: bytes = b"ok", status: int = 200, **headers: str
) -> None:
    """A well-formed answer; a header's name has _ for -."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    await writer.drain()


class Statuses:
    """Answers with one status after the other, the last one for ever."""

    def __init__(self, *statuses: int, **headers: str) -> None:
        self.left = list(statuses)
        self.headers = headers

    async def __call__(self, request: Received, writer: asyncio.StreamWriter) -> None:
        status = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        await answer(writer, b"", status, **self.headers)


async def echo(request: Received, writer: asyncio.StreamWriter) -> None:
    """Answers with the request's body."""
    await answer(writer, request.body or b"ok")


@dataclass
class Server:
    """A server on loopback. It counts connections and remembers requests."""

    port: int = 0
    received: list[Received] = field(default_factory=list)
    num_connections: int = 0
    num_closed: int = 0  # connections that the client closed


@asynccontextmanager
async def serving(handler: Handler, *, names: tuple[str, ...] = ()) -> AsyncIterator[Server]:
    """Run a server; with names over TLS, with a certificate of the test's authority for them."""
    server = Server()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.num_connections += 1
        try:
            while request := await _request(reader):
                server.received.append(request)
                await handler(request, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            server.num_closed += 1
            writer.close()

    tls = _server_context(names) if names else None
    listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()


async def _request(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    method, path, _ = head[0].split(" ")
    headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:] if line)}
    return Received(
        method, path, headers, await reader.readexactly(int(headers.get("content-length", 0)))
    )


class Wire(httpcore2.AsyncNetworkBackend):
    """Stands for the internet: what is dialled is recorded, and public addresses lead to a server
    on loopback. Everything else fails the test."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.dialled: list[tuple[str, int]] = []
        self._real = httpcore2.AnyIOBackend()

    async def connect_tcp(self, host: str, port: int, **options: Any) -> Any:
        self.dialled.append((host, port))
        assert host in (PUBLIC, PUBLIC_6), f"dialled {host}"
        return await self._real.connect_tcp("127.0.0.1", self.port, **options)


@asynccontextmanager
async def loopback(
    handler: Handler, *, limits: Limits | None = None, clock: Callable[[], float] | None = None
) -> AsyncIterator[tuple[Outbound, Server, str]]:
    """A server that the operator's list opens, a client, and the server's URL."""
    async with serving(handler) as server:
        options: dict[str, Any] = {"clock": clock} if clock else {}
        allowed = parse_allowed([f"127.0.0.0/8:{server.port}"])
        client = Outbound(allowed=allowed, limits=limits, **options)
        try:
            yield client, server, f"http://127.0.0.1:{server.port}"
        finally:
            await client.close()


@contextmanager
def resolving(monkeypatch: Any, names: dict[str, Any]) -> Iterator[list[str]]:
    """Names have these addresses and no others exist; a list of lists is one answer after another.
    Yields the names that were looked up."""
    asked: list[str] = []

    def getaddrinfo(host: Any, port: Any, *args: Any, **options: Any) -> list[Any]:
        name = host.decode() if isinstance(host, bytes) else str(host)
        try:
            addresses = [str(ipaddress.ip_address(name))]
        except ValueError:
            asked.append(name)
            if name not in names:
                raise socket.gaierror(socket.EAI_NONAME, "unknown") from None
            addresses = names[name]
            if isinstance(addresses[0], list):
                addresses = addresses[min(asked.count(name), len(addresses)) - 1]
        families = [socket.AF_INET6 if ":" in a else socket.AF_INET for a in addresses]
        return [
            (family, socket.SOCK_STREAM, 6, "", (address, int(port or 0)))
            for family, address in zip(families, addresses, strict=True)
        ]

    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", getaddrinfo)
        yield asked


_watching: list[list[Any]] = []


def _watch(event: str, args: tuple[Any, ...]) -> None:
    if event == "socket.connect":
        for seen in _watching:
            seen.append(args[1])


@functools.cache
def _install_watch() -> None:
    sys.addaudithook(_watch)  # cannot be removed, so there is one for all tests


@contextmanager
def watching_connections() -> Iterator[list[Any]]:
    """Every address that anything in this process connects a socket to, as the interpreter's own
    audit sees it."""
    _install_watch()
    seen: list[Any] = []
    _watching.append(seen)
    try:
        yield seen
    finally:
        _watching.remove(seen)


class Authority:
    """A certificate authority of the tests."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("authority of tests")
        usage = x509.BasicConstraints(ca=True, path_length=0)
        identity = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        builder = _certificate(self._name, self._name, self._key.public_key()).add_extension(
            identity, critical=False
        )
        self._certificate = builder.add_extension(usage, critical=True).sign(
            self._key, hashes.SHA256()
        )

    def trusting(self) -> ssl.SSLContext:
        """A client's context that trusts this authority alone."""
        pem = self._certificate.public_bytes(serialization.Encoding.PEM).decode()
        return ssl.create_default_context(cadata=pem)

    def write(self, names: tuple[str, ...], path: Path) -> None:
        """A certificate for names, and its key, in one file."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = _certificate(_name(names[0]), self._name, key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        signed = builder.add_extension(alternatives, critical=False).sign(
            self._key, hashes.SHA256()
        )
        form = serialization.PrivateFormat.PKCS8
        path.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
            + signed.public_bytes(serialization.Encoding.PEM)
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _certificate(subject: Any, issuer: Any, key: Any) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
    )


@functools.cache
def authority() -> Authority:
    """The one of this test run."""
    return Authority()


def _server_context(names: tuple[str, ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "certificate.pem"
        authority().write(names, path)
        context.load_cert_chain(path)
    return context
