"""A server as a command asks it: one connection, the credentials of both sides, errors that end the command."""

import atexit
import base64
import binascii
import json
import os
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, urlencode, urlsplit

from volsched.cli.console import Exit, fail

CONNECT_SECONDS = 10
ANSWER_SECONDS = 300
"""The timeout of an answer: verifying a long log takes minutes."""
TRIES = 5
"""Requests that are refused with 429, too many at once, have done nothing and are repeated."""
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
JSON = "application/json"
CODES = {
    400: Exit.USAGE,
    404: Exit.NOT_FOUND,
    408: Exit.TIMED_OUT,
    409: Exit.CONFLICT,
    410: Exit.NOT_FOUND,
    504: Exit.TIMED_OUT,
}
"""Any other refusal is a failure."""
Query = Mapping[str, str | int | None]


class ServerRefusedError(Exception):
    """A Status other than success."""

    def __init__(self, code: int, status: Mapping[str, Any]) -> None:
        super().__init__(str(status.get("message") or f"the server answered {code}"))
        self.code = code
        self.reason = str(status.get("reason", ""))
        self.details: Mapping[str, Any] = status.get("details") or {}


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    body: Any
    headers: Mapping[str, str]


@dataclass(slots=True, kw_only=True)
class RemoteServer:
    url: str
    token: str | None = None
    ca_file: Path | None = None
    ca_data: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    _connection: HTTPConnection | None = field(default=None, init=False)

    def get(self, path: str, query: Query | None = None, *, unprocessable: Exit | None = None) -> Any:
        """The body of the answer; a refusal ends the command."""
        return self.ask("GET", path, query=query, unprocessable=unprocessable)

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        reason: str | None = None,
        unprocessable: Exit | None = None,
    ) -> Any:
        """As `request`; a refusal ends the command with its message. `unprocessable`: the exit code of a 422."""
        try:
            return self.request(method, path, query=query, body=body, reason=reason).body
        except ServerRefusedError as error:
            self.refuse(error, unprocessable=unprocessable)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        reason: str | None = None,
        accept: str = JSON,
        content: str = JSON,
        more: Mapping[str, str] | None = None,
    ) -> ServerAnswer:
        """Raises ServerRefusedError; a server that cannot be reached, or does not know us, ends the command."""
        headers = {"Accept": accept, **(more or {})}
        if body is not None:
            headers["Content-Type"] = content
        if reason is not None:
            headers["X-Volsched-Reason"] = quote(reason)
        text = None if body is None else json.dumps(body).encode()
        for _ in range(TRIES):
            response = self._send(method, path, query, text, headers)
            read = self._read(response)
            if response.status != 429:
                break
            time.sleep(float(response.headers.get("retry-after") or 1))
        if response.status >= 300:
            raise self._refusal(response.status, read)
        return ServerAnswer(read, {name.lower(): value for name, value in response.headers.items()})

    def answer(self, method: str, path: str, *, body: Any = None, content: str = JSON) -> tuple[int, Any]:
        """Status code and body, whatever they are: for callers that test the server."""
        headers = {"Accept": JSON} if body is None else {"Accept": JSON, "Content-Type": content}
        text = None if body is None else json.dumps(body).encode()
        response = self._send(method, path, None, text, headers)
        return response.status, self._read(response)

    def lines(self, path: str, query: Query, *, accept: str) -> Iterator[Any]:
        """The JSON documents of a watch, until the server ends it."""
        response = self._send("GET", path, query, None, {"Accept": accept})
        if response.status >= 300:
            raise self._refusal(response.status, self._read(response))
        if self._connection is not None and self._connection.sock is not None:
            # No timeout: a watch may be silent for hours.
            self._connection.sock.settimeout(None)
        try:
            while line := response.readline():
                yield json.loads(line)
            self._connection = None
        except (OSError, HTTPException, ValueError) as error:
            fail(Exit.FAILURE, f"{self.url} broke off: {_why(error)}; run the command again")

    def refuse(self, error: ServerRefusedError, *, unprocessable: Exit | None = None) -> NoReturn:
        code = (
            unprocessable
            if unprocessable is not None and error.code == 422
            else CODES.get(error.code, Exit.FAILURE)
        )
        fail(code, str(error))

    def _send(
        self, method: str, path: str, query: Query | None, body: bytes | None, headers: dict[str, str]
    ) -> HTTPResponse:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = f"{path}?{urlencode(given)}" if given else path
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            if self._connection is None:
                self._connection = self._connect()
            self._connection.request(method, target, body, headers)
            return self._connection.getresponse()
        except TimeoutError:
            fail(
                Exit.TIMED_OUT,
                f"{self.url} has not answered in {ANSWER_SECONDS} s; check whether it was done",
            )
        except ssl.SSLError as error:
            why = getattr(error, "verify_message", "") or error.reason or str(error)
            fail(
                Exit.FAILURE,
                f"{self.url} is not trusted, or does not trust us: {why}; give its CA with --ca-file, "
                "and a certificate of its own authority with --client-cert",
            )
        except (OSError, HTTPException) as error:
            fail(
                Exit.FAILURE,
                f"{self.url} cannot be reached: {_why(error)}; is it running (volsched up, volsched serve api), "
                "is the port right, and does it speak https?",
            )

    def _connect(self) -> HTTPConnection:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        if parts.scheme == "http":
            connection = HTTPConnection(parts.hostname, parts.port, timeout=CONNECT_SECONDS)
        else:
            connection = HTTPSConnection(
                parts.hostname, parts.port, timeout=CONNECT_SECONDS, context=self._tls_context()
            )
        try:
            connection.connect()
        except TimeoutError:
            fail(
                Exit.TIMED_OUT, f"{self.url} has not answered in {CONNECT_SECONDS} s; check the host and the port"
            )
        connection.sock.settimeout(ANSWER_SECONDS)
        return connection

    def _tls_context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca_file, cadata=self.ca_data)
        except (OSError, ssl.SSLError):
            fail(
                Exit.USAGE, f"{self.ca_file or 'the kubeconfig'} holds no certificate in PEM; give --ca-file FILE"
            )
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key)
            except (OSError, ssl.SSLError):
                fail(
                    Exit.USAGE,
                    f"{self.certificate} and {self.key} are no certificate and its key in PEM; create them with: "
                    "volsched certs client",
                )
        return context

    def _read(self, response: HTTPResponse) -> Any:
        try:
            content = response.read()
            return json.loads(content) if content else None
        except TimeoutError:
            fail(
                Exit.TIMED_OUT,
                f"{self.url} has not answered in {ANSWER_SECONDS} s; check whether it was done",
            )
        except (OSError, HTTPException) as error:
            fail(Exit.FAILURE, f"{self.url} broke off: {_why(error)}; check whether it was done")
        except ValueError:
            fail(
                Exit.FAILURE, f"{self.url} answers {response.status}, and not as volsched does; check the address"
            )

    def _refusal(self, code: int, status: Any) -> ServerRefusedError:
        """A server that does not know us, or lets us do nothing, ends the command."""
        message = status.get("message", "") if isinstance(status, dict) else ""
        if code == 401:
            fail(
                Exit.FAILURE,
                f"{self.url} does not know who is asking ({message or 'Unauthorized'}); give a valid token with "
                "--token-file, or --client-cert and --client-key; volsched token create NAME creates one",
            )
        # Admission answers 403 too; only a missing permission names the user.
        if code == 403 and (not message or 'User "' in message):
            fail(
                Exit.FAILURE,
                f"{message or 'forbidden'}; ask for a role that may: volsched token create NAME --role ROLE",
            )
        return ServerRefusedError(code, status if isinstance(status, dict) else {})


def _why(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "there is no such host"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


# Credentials of both sides: tokens, certificates, and the kubeconfig that holds them.


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    server: str = ""
    token: str | None = None
    ca_file: Path | None = None
    ca_data: str | None = None
    certificate: Path | None = None
    key: Path | None = None


def read_secret(name: str) -> str:
    """The token in a file; any other content is never printed."""
    try:
        text = (sys.stdin.read() if name == "-" else Path(name).read_text(encoding="ascii")).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        fail(Exit.USAGE, f"{name} cannot be read: {why}; give the file of a token")
    if not text or not text.isprintable() or " " in text:
        fail(Exit.USAGE, f"{name} holds no token; give what volsched token create has written")
    return text


def default_kubeconfig() -> Path:
    """The one that kubectl reads first."""
    named = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    return Path(named) if named else Path("~/.kube/config").expanduser()


def of_kubeconfig(path: Path, context: str | None = None) -> Credentials:
    """The credentials of a context; without a name, of the current one."""
    # Only a kubeconfig is YAML.
    import yaml

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        fail(Exit.USAGE, f"{path} cannot be read: {error.strerror}; check the path and its permissions")
    except (yaml.YAMLError, UnicodeDecodeError):
        # The content is not printed: it has secrets.
        fail(Exit.USAGE, f"{path} is not a kubeconfig; write one with: volsched kubeconfig --out {path}")
    try:
        chosen = _entry(document, "contexts", context or document["current-context"])
        if context is not None and not chosen:
            there = ", ".join(it["name"] for it in document["contexts"])
            fail(Exit.USAGE, f'{path} has no context "{context}"; choose one with --context: {there}')
        cluster = _entry(document, "clusters", chosen["context"]["cluster"])["cluster"]
        user = _entry(document, "users", chosen["context"].get("user", "")).get("user") or {}
        return _credentials(path.parent, cluster, user)
    except (KeyError, TypeError, AttributeError, binascii.Error, UnicodeDecodeError):
        fail(
            Exit.USAGE,
            f"{path} has no current-context with a cluster and a user; write one with: volsched kubeconfig",
        )


def _credentials(directory: Path, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> Credentials:
    token = user.get("token")
    if token is None and "tokenFile" in user:
        token = read_secret(str(directory / user["tokenFile"]))
    data = cluster.get("certificate-authority-data")
    return Credentials(
        server=str(cluster["server"]),
        token=token,
        ca_file=_path(directory, cluster.get("certificate-authority")),
        ca_data=None if data is None else base64.b64decode(data).decode("ascii"),
        certificate=_file(directory, user, "client-certificate"),
        key=_file(directory, user, "client-key"),
    )


def _entry(document: Mapping[str, Any], part: str, name: str) -> Mapping[str, Any]:
    entry: Mapping[str, Any] = next((it for it in document.get(part) or () if it.get("name") == name), {})
    return entry


def _path(directory: Path, name: str | None) -> Path | None:
    """The path as kubectl reads it: relative to the kubeconfig, unless absolute."""
    return None if name is None else directory / name


def _file(directory: Path, user: Mapping[str, Any], field: str) -> Path | None:
    """TLS reads files only: data in the kubeconfig is in a private one until the process ends."""
    if f"{field}-data" not in user:
        return _path(directory, user.get(field))
    content = base64.b64decode(user[f"{field}-data"])
    handle, name = tempfile.mkstemp(prefix="volsched-")
    atexit.register(Path(name).unlink, missing_ok=True)
    with os.fdopen(handle, "wb") as out:
        out.write(content)
    return Path(name)
