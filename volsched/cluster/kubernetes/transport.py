"""One connection pool to one API server: TLS, credentials, our own rate limit, and errors with a remedy.

Every failure becomes one of the port's errors here; its message names the server and the remedy.
"""

import os
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from threading import Event, Lock
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
import orjson

from volsched.cluster.kubernetes.backoff import TokenBucket
from volsched.cluster.kubernetes.credentials import Credential, CredentialSource
from volsched.cluster.kubernetes.kubeconfig import ClusterAccess, KubeconfigError
from volsched.cluster.kubernetes.requests import ApiRequest
from volsched.cluster.kubernetes.responses import LaggingError, NotAuthenticatedError, error_of
from volsched.cluster.port import UnansweredError

Sent = TypeVar("Sent")
CONNECT_SECONDS = 10.0
CALL_SECONDS = 40.0
"""Servers allow a write 34 s. With a shorter timeout, we would give up on writes that still succeed."""
LIST_SECONDS = 60.0
SILENT_SECONDS = 150.0
"""A watch without a byte for this long is treated as dead: a kind without changes is silent for up to 120 s."""
MOST_CONNECTIONS = 40
LAG_TRIES = 5
KEEP_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
)
_CERTIFICATE_TIMES = (9, 10)
"""OpenSSL's codes for a certificate that is not yet or no longer valid."""


class SilentError(UnansweredError):
    """Nothing was received for so long that the connection may be dead. No fault: a quiet kind looks the same."""


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    body: Any
    date: str = ""
    """The server's time."""


class Transport:
    """`pause` waits for a number of seconds; tests may replace it."""

    def __init__(
        self,
        access: ClusterAccess,
        credentials: CredentialSource,
        *,
        user_agent: str,
        bucket: TokenBucket,
        silent_seconds: float = SILENT_SECONDS,
        pause: Callable[[float], object] | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.access = access
        self._credentials, self._user_agent, self._bucket = credentials, user_agent, bucket
        self._silent_seconds, self._environment = silent_seconds, environment
        self._pause: Callable[[float], object] = pause or Event().wait
        self._lock = Lock()
        self._client: httpx2.Client | None = None
        self._client_for: tuple[bytes | None, bytes | None] | None = None

    def call(self, request: ApiRequest) -> ApiAnswer:
        """The answer to a request, decoded; raises ClusterError."""
        for attempt in range(LAG_TRIES):
            try:
                return self._send_with_credentials(request, self._call)
            except LaggingError as error:
                # This replica lags: the same request succeeds a moment later.
                if attempt == LAG_TRIES - 1:
                    raise
                self._pause(error.retry_after or 1.0)
        raise AssertionError("unreachable")

    @contextmanager
    def stream(self, request: ApiRequest) -> Iterator["ByteStream"]:
        """The body of a watch as it arrives; an end without the closing chunk raises UnansweredError."""
        stream = self._send_with_credentials(request, self._open)
        try:
            yield stream
        finally:
            stream.close()

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _send_with_credentials(self, request: ApiRequest, send: Callable[[ApiRequest], Sent]) -> Sent:
        try:
            return send(request)
        except NotAuthenticatedError as first:
            error = first
        if self._credentials.renew():
            try:
                return send(request)
            except NotAuthenticatedError as second:
                error = second
        raise UnansweredError(
            f"{error}: {self.access.server} does not accept our credentials; {self._credentials.remedy()}"
        ) from error

    def _call(self, request: ApiRequest) -> ApiAnswer:
        seconds = LIST_SECONDS if "limit" in request.query or "resourceVersion" in request.query else CALL_SECONDS
        with self._errors_with_remedy(request):
            client, headers = self._client_and_headers(request)
            answer = client.request(
                request.method,
                self.access.server + request.path,
                params=dict(request.query),
                content=None if request.body is None else orjson.dumps(request.body),
                headers=headers,
                timeout=httpx2.Timeout(seconds, connect=CONNECT_SECONDS),
                extensions=self._extensions(),
            )
        error = error_of(request, answer.status_code, answer.headers, answer.content)
        if error is not None:
            raise error
        try:
            return ApiAnswer(orjson.loads(answer.content), answer.headers.get("date", ""))
        except orjson.JSONDecodeError as broken:
            raise UnansweredError(
                f"{request.what}: {self.access.server} did not answer with JSON; is it an API server, or a proxy?"
            ) from broken

    def _open(self, request: ApiRequest) -> "ByteStream":
        with self._errors_with_remedy(request):
            client, headers = self._client_and_headers(request)
            # Uncompressed: a compressor would delay an event until the next one.
            built = client.build_request(
                request.method,
                self.access.server + request.path,
                params=dict(request.query),
                headers={**headers, "Accept-Encoding": "identity"},
                timeout=httpx2.Timeout(CONNECT_SECONDS, read=self._silent_seconds),
                extensions=self._extensions(),
            )
            response = client.send(built, stream=True)
            if response.status_code != 200:
                try:
                    body = response.read()
                finally:
                    response.close()
                error = error_of(request, response.status_code, response.headers, body)
                assert error is not None
                raise error
        return ByteStream(response, lambda: self._errors_with_remedy(request))

    def _client_and_headers(self, request: ApiRequest) -> tuple[httpx2.Client, dict[str, str]]:
        with self._lock:
            wait = self._bucket.take(monotonic())
        if wait:
            self._pause(wait)
        with self._lock:
            credential = self._credentials.current()
            client = self._client_of(credential)
        headers = {"Accept": request.accept, "User-Agent": self._user_agent}
        headers |= {"Content-Type": request.content_type} if request.body is not None else {}
        headers |= {"Authorization": f"Bearer {credential.token}"} if credential.token else {}
        return client, headers

    def _client_of(self, credential: Credential) -> httpx2.Client:
        """A new pool where a plugin has returned another certificate, which is presented once per connection."""
        shown = (credential.certificate, credential.key)
        if self._client is None or self._client_for != shown:
            proxy = proxy_of(self.access, self._environment)
            transport = httpx2.HTTPTransport(
                verify=tls_context(self.access, credential),
                limits=httpx2.Limits(max_connections=MOST_CONNECTIONS, max_keepalive_connections=16),
                proxy=None if proxy is None else httpx2.Proxy(proxy),
                socket_options=KEEP_ALIVE,
            )
            self._client, self._client_for = httpx2.Client(transport=transport, trust_env=False), shown
        return self._client

    def _extensions(self) -> dict[str, Any]:
        name = self.access.tls_server_name
        return {} if name is None else {"sni_hostname": name}

    @contextmanager
    def _errors_with_remedy(self, request: ApiRequest) -> Iterator[None]:
        try:
            yield
        except KubeconfigError as error:
            raise UnansweredError(str(error)) from error
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise UnansweredError(f"{request.what}: {trouble(error, self.access)}") from error


class ByteStream:
    """The body of one watch; another thread may close it."""

    def __init__(self, response: httpx2.Response, errors_with_remedy: Callable[[], Any]) -> None:
        self._response, self._errors_with_remedy = response, errors_with_remedy

    def chunks(self) -> Iterator[bytes]:
        with self._errors_with_remedy():
            try:
                yield from self._response.iter_raw()
            except httpx2.ReadTimeout as error:
                raise SilentError("nothing was received for a long time; the watch is reopened") from error

    def cut(self) -> None:
        """Shut the socket down, which wakes the reading thread; closing it would not."""
        network = self._response.extensions.get("network_stream")
        connection = None if network is None else network.get_extra_info("socket")
        if connection is not None:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                # The socket is already closed.
                return

    def close(self) -> None:
        self._response.close()


def proxy_of(access: ClusterAccess, environment: Mapping[str, str]) -> str | None:
    """The kubeconfig's proxy; otherwise HTTPS_PROXY, unless NO_PROXY excludes this server."""
    if access.proxy is not None:
        return access.proxy
    server = urlsplit(access.server)
    variables = {name.lower(): value for name, value in environment.items() if name.lower().endswith("_proxy")}
    proxy = variables.get(f"{server.scheme}_proxy")
    return None if not proxy or is_direct(server.hostname or "", variables.get("no_proxy", "")) else proxy


def is_direct(host: str, no_proxy: str) -> bool:
    """Whether NO_PROXY excludes the host: by names with subdomains, addresses and networks; `*` is all."""
    for entry in (part.strip().lower() for part in no_proxy.split(",")):
        if entry == "*" or (entry and (host == entry.lstrip(".") or host.endswith(f".{entry.lstrip('.')}"))):
            return True
        with suppress(ValueError):
            if ip_address(host) in ip_network(entry, strict=False):
                return True
    return False


def tls_context(access: ClusterAccess, credential: Credential) -> ssl.SSLContext:
    try:
        ca = None if access.ca_data is None else access.ca_data.decode("ascii")
        context = ssl.create_default_context(cafile=access.ca_file, cadata=ca)
    except (OSError, ssl.SSLError, UnicodeDecodeError) as error:
        where = access.ca_file or "certificate-authority-data"
        raise KubeconfigError(f'the CA of context "{access.context}" ({where}) cannot be used: {error}') from error
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if credential.certificate is not None and credential.key is not None:
        _load_pair(context, credential.certificate, credential.key, access)
    return context


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes, access: ClusterAccess) -> None:
    # OpenSSL reads them only from files. No other user can read these, and they are removed at once.
    with tempfile.TemporaryDirectory() as directory:
        pair = Path(directory) / "pair.pem"
        pair.touch(0o600)
        pair.write_bytes(certificate.rstrip() + b"\n" + key)
        try:
            context.load_cert_chain(pair)
        except (OSError, ssl.SSLError) as error:
            raise KubeconfigError(
                f'client certificate and key of context "{access.context}" do not match; renew them'
            ) from error


def trouble(error: BaseException, access: ClusterAccess) -> str:
    """Why a server could not be reached, and the remedy, in one line."""
    beneath: BaseException | None = error
    while beneath is not None:
        if isinstance(beneath, ssl.SSLCertVerificationError):
            return _distrust(beneath, access)
        if isinstance(beneath, ssl.SSLError):
            why = beneath.reason or str(beneath)
            return f"TLS with {access.server} failed: {why}; is it an https server, and do the certificates match?"
        if isinstance(beneath, socket.gaierror):
            host = urlsplit(access.server).hostname
            return f'the name "{host}" is not known here; check context "{access.context}" and the DNS'
        beneath = beneath.__cause__ or beneath.__context__
    through = f" through the proxy {access.proxy}" if access.proxy else ""
    match error:
        case httpx2.ConnectError() | httpx2.ConnectTimeout() | httpx2.ProxyError():
            why = str(error) or "no answer"
            return (
                f"{access.server} cannot be reached{through}: {why}; is the server up, and is "
                f'context "{access.context}" the right one?'
            )
        case httpx2.TimeoutException():
            return f"{access.server} gave no answer in time; it may still carry the request out"
        case _:
            return f"the connection to {access.server} broke: {str(error) or type(error).__name__}"


def _distrust(error: ssl.SSLCertVerificationError, access: ClusterAccess) -> str:
    if error.verify_code in _CERTIFICATE_TIMES:
        return (
            f"the certificate of {access.server} is not valid at this machine's time ({error.verify_message}); "
            "compare the clocks of both, then renew the certificate"
        )
    if "mismatch" in str(error.verify_message).lower():
        return (
            f"the certificate of {access.server} is for another name ({error.verify_message}); set "
            f'tls-server-name of context "{access.context}" to a name in it'
        )
    return (
        f'the certificate of {access.server} is not of the CA that context "{access.context}" trusts '
        f"({error.verify_message}); the cluster was replaced, or the kubeconfig is for another one: fetch it again"
    )
