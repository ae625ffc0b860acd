"""The routes, and what runs beside them: the writer, and the reader behind the watches."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    GCCollector,
    ProcessCollector,
    generate_latest,
)
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from volsched.api import health
from volsched.api.access.access_reviews import ACCESS, RULES, SELF, Reviews
from volsched.api.access.callers import current_caller
from volsched.api.access.gate import Gate
from volsched.api.access.hosts import Hosts
from volsched.api.extender.service import Extender
from volsched.api.freshness import Freshness
from volsched.api.health import HttpMetrics, StoreMetrics
from volsched.api.kubernetes import discovery, openapi_message
from volsched.api.kubernetes.dispatcher import Kubernetes
from volsched.api.kubernetes.negotiation import HttpAnswer
from volsched.api.kubernetes.statuses import UNSERVED, ApiError
from volsched.api.limits import DEFAULT_LIMITS, Limits
from volsched.api.questions.app import OwnEndpoints
from volsched.api.read_only import ReadOnly
from volsched.api.services import Services
from volsched.api.strict.server import WINDOW, StrictServer
from volsched.api.watch_cache import RING, Fan, Tail, WatchBatch
from volsched.console.files import console_files
from volsched.log.database import Database
from volsched.log.reads.head import FileHead
from volsched.runtime.clock import Clock
from volsched.runtime.runner import Failed, looping, running, waking
from volsched.runtime.writer import Writer
from volsched.scheduling.rules.configuration import DEFAULT, Configuration

TAIL_BEGINS_SECONDS = 60
LINGER_SECONDS = 0.02
"""Between two reads of a busy log: waking every watcher for every event costs more than batching."""
REREAD_AFTER_MICROSECONDS = 1_000_000
"""The tail is read after so long even if no commit was announced."""


class Api:
    """One process's API: the application, its services, and the watches that must end before it does."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock,
        actor: str,
        zonal_upgrade: bool,
        committed: Callable[[], None] = lambda: None,
        failed: Failed,
        ring_size: int = RING,
        configuration: Configuration = DEFAULT,
        hosts: Hosts | None = None,
        limits: Limits = DEFAULT_LIMITS,
        strict: bool = False,
        read_only: bool = False,
        follows: bool = False,
        reserves: bool = True,
        binds: bool = True,
    ) -> None:
        """`committed` is called after every commit; `failed`, when a required thread has died. `hosts` are the
        names of a TLS server, whose callers authenticate; without, all are local. `strict`: refuse and misbehave
        as a real API server does. `read_only`: the objects are another cluster's; then `reserves` says whether
        reservations are accepted, and `binds` whether bindings are carried out."""
        self.fan = Fan(ring_size=min(ring_size, WINDOW) if strict else ring_size)
        self._strict = strict
        self._committed, self._failed, self._clock = committed, failed, clock
        self._configuration, self._hosts, self.limits = configuration, hosts, limits
        self._services = Services(
            database,
            Writer(database),
            self.fan,
            clock,
            actor,
            zonal_upgrade=zonal_upgrade,
            limits=limits,
            distinguishes_callers=hosts is not None,
            read_only=read_only,
            follows=follows,
            reserves=reserves,
            binds=binds,
        )
        self._registry = CollectorRegistry()
        self._registry.register(StoreMetrics(database, self.fan, clock, self._services.tally))
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self.app = self._application()

    def _application(self) -> Starlette:
        metrics = HttpMetrics(self._registry)
        kubernetes = Kubernetes(self._services, metrics)
        self._endpoints = OwnEndpoints(self._services, metrics, self._configuration)
        reviews = Reviews(self._services)
        routes = [
            Route(ACCESS, reviews.access, methods=["POST"]),
            Route(RULES, reviews.rules, methods=["POST"]),
            Route(SELF, reviews.whoami, methods=["POST"]),
            Route("/apis/volsched.io{rest:path}", self._endpoints),
            Route("/api{rest:path}", kubernetes),
            Route("/extender/{verb:path}", Extender(self._services, metrics, self._configuration)),
            Route("/", _root),
            Route("/ui/{place:path}", console_files(opened=self._endpoints.expect_questions)),
            Route("/version", _constant(lambda _: discovery.server_version())),
            Route("/openapi/v2", _version_2),
            Route("/openapi/v3", _constant(lambda _: discovery.root())),
            Route("/openapi/v3/{place:path}", _constant(lambda it: discovery.document(it.path_params["place"]))),
            Route("/healthz", self._health("healthz", health.ready)),
            Route("/readyz", self._health("readyz", health.ready)),
            Route("/livez", self._health("livez", health.alive)),
            Route("/metrics", self._metrics),
        ]
        app = Starlette(
            routes=routes,
            lifespan=self._lifespan,
            middleware=[
                *([Middleware(StrictServer, self.fan)] if self._strict else []),
                Middleware(Gate, self._services, self._hosts, self._registry),
                *([Middleware(ReadOnly, self._services)] if self._services.read_only else []),
            ],
            exception_handlers={404: _unserved, 405: _not_allowed},
        )
        app.router.redirect_slashes = False
        return app

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        begun = asyncio.Event()

        def receive(batch: WatchBatch) -> None:
            self.fan.receive(batch)
            begun.set()

        def publish(batch: WatchBatch) -> None:
            loop.call_soon_threadsafe(receive, batch)

        with ExitStack() as stack:
            stack.callback(self._endpoints.close)
            tail = Tail(self._services.database, publish, self._services.tally)
            reader = stack.enter_context(
                looping(
                    tail.step,
                    clock=self._clock,
                    name="volsched-tail",
                    failed=self._failed,
                    linger=LINGER_SECONDS,
                    rest=lambda now: now + REREAD_AFTER_MICROSECONDS,
                )
            )
            stack.enter_context(waking(self._services.database, reader.wake, self._committed))
            stack.enter_context(running(self._services.writer, clock=self._clock))

            def committed() -> None:
                reader.wake()
                self._committed()

            self._services.committed = committed
            async with asyncio.timeout(TAIL_BEGINS_SECONDS):
                await begun.wait()
            file = FileHead(self._services.database)
            stack.callback(file.close)
            self._services.freshness = Freshness(tail, self.fan, self._services.read, file)
            yield
            self._services.freshness = None

    def _health(
        self, name: str, look: Callable[[Services], Awaitable[health.Checks]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            checks = await look(self._services)
            if current_caller() is None:
                checks = {check: fault and health.WITHHELD for check, fault in checks.items()}
            fine = all(fault is None for fault in checks.values())
            text = health.checks_text(checks, name=name, verbose="verbose" in request.query_params)
            return PlainTextResponse(text, 200 if fine else 503)

        return answer

    async def _metrics(self, _: Request) -> Response:
        text = await self._services.read(generate_latest, self._registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)


def _constant(make: Callable[[Request], object]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        document = make(request)
        return await _unserved(request, None) if document is None else HttpAnswer(document).response()

    return answer


async def _version_2(request: Request) -> Response:
    """`/openapi/v2` in JSON, or as the message that kubectl requests."""
    if openapi_message.MEDIA_TYPE in request.headers.get("accept", ""):
        return Response(discovery.version_2_message(), media_type=openapi_message.ANSWER_TYPE)
    return HttpAnswer(discovery.version_2()).response()


async def _root(request: Request) -> Response:
    """The paths, for programs; a browser is sent to the console."""
    if "text/html" in request.headers.get("accept", ""):
        return RedirectResponse("/ui/")
    return HttpAnswer(discovery.root_paths()).response()


async def _unserved(_: Request, __: Exception | None) -> Response:
    error = ApiError(404, UNSERVED)
    return HttpAnswer(error.status, error.code).response()


async def _not_allowed(_: Request, __: Exception | None) -> Response:
    error = ApiError(405, "the server does not allow this method on the requested resource")
    return HttpAnswer(error.status, error.code).response()
