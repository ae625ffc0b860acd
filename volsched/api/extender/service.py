"""The extender over HTTP: `POST /extender/filter`, `prioritize`, `bind`, `preempt`, and `GET /extender/healthz`.

kube-scheduler treats any answer but 200 as a failed call, and ignores its body. So errors are reported in `Error`,
with 200; other codes are for unreadable messages, and for when we are not ready.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar
from uuid import uuid4

import anyio
import anyio.to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from volsched.api.extender import messages
from volsched.api.extender.decider import BindError, ExtenderDecider, ExtenderPlacement, Underway, UnseenPodError
from volsched.api.health import HttpMetrics, cluster_trouble
from volsched.api.kubernetes.negotiation import JSON, HttpAnswer, media_type
from volsched.api.kubernetes.statuses import INTERNAL, RETRY_AFTER_SECONDS, UNSERVED, ApiError, store_error
from volsched.api.limits import receive_body
from volsched.api.services import Services, new_uid
from volsched.log.commands import Command
from volsched.runtime.clock import SECOND
from volsched.scheduling.rules.configuration import Configuration

PREFIX = "/extender/"
HEALTH = ("healthz", "health")
LOADING_SECONDS = 2.0
"""How long a call may wait for the world to be loaded, before the client must retry."""
LOOK_AGAIN_SECONDS = 0.25
"""A binding is checked whenever a pod changes; a failing one changes none, and is found by polling."""
UNSEEN_SECONDS = 2
"""How long bind waits for a pod of a followed cluster: its scheduler may have seen it a moment before us."""
OVERTIME_SECONDS = 30
"""After a binding's deadline: by then the sweep should have ended it."""
MOST_BYTES = 64 * 2**20
"""One message may hold thousands of whole nodes."""
LARGE = 256 * 2**10
"""Messages of this many bytes are handled in a thread: they would block the event loop."""
ADVISES = (
    "this volsched binds nothing: it observes or advises; leave bindVerb out and VolumeBinding enabled, or run "
    "volsched attach --mode own"
)
NOT_LOADED = "the extender is still reading the log; try again"
_log = logging.getLogger("volsched.api")
P = ParamSpec("P")
T = TypeVar("T")


class Extender:
    """An ASGI application. It loads nothing before its first call."""

    def __init__(self, services: Services, metrics: HttpMetrics, configuration: Configuration) -> None:
        self._services, self._metrics, self._configuration = services, metrics, configuration
        self._instance = uuid4().hex[:8]
        self._decider: ExtenderDecider | None = None
        self._loading: asyncio.Task[None] | None = None
        self._turn: anyio.CapacityLimiter | None = None
        self._verbs: dict[str, Callable[[Request, bytes], Awaitable[Any]]] = {
            "filter": self._filter,
            "prioritize": self._prioritize,
            "bind": self._bind,
            "preempt": self._preempt,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        begun = time.perf_counter()
        verb = request.url.path.removeprefix(PREFIX)
        try:
            if verb in HEALTH and request.method in ("GET", "HEAD"):
                await self._ready()
                await PlainTextResponse("ok")(scope, receive, send)
                return
            answer = await self._serve(request, verb)
        except ClientDisconnect:
            return
        except Exception as error:
            answer = self._failed(error, verb)
        known = verb if verb in self._verbs else "other"
        self._metrics.count(known, "extender", answer.code, time.perf_counter() - begun)
        await answer.response()(scope, receive, send)

    def _failed(self, error: Exception, verb: str) -> HttpAnswer:
        api_error = ApiError(422, str(error)) if isinstance(error, BindError) else store_error(error)
        if api_error.code == 500 and str(api_error) == INTERNAL:
            _log.error("extender %s failed", verb, exc_info=error)
        if api_error.code >= 500 and not isinstance(error, ApiError):
            # The cached state may predate the failure. Our own refusals do not count: reloading everything
            # whenever a client disconnects would delay all callers.
            self._decider = None
        if api_error.code == 500 and verb == "filter":
            return HttpAnswer(messages.filter_result(messages.FilterAnswer(error=str(api_error)), None))
        if api_error.code == 500 and verb == "bind":
            return HttpAnswer(messages.binding_result(str(api_error)))
        return HttpAnswer(api_error.status, api_error.code)

    async def _serve(self, request: Request, verb: str) -> HttpAnswer:
        serve = self._verbs.get(verb)
        if serve is None:
            raise ApiError(404, UNSERVED)
        if request.method != "POST":
            raise ApiError(405, f"{verb} takes POST only")
        media, _ = media_type(request.headers.get("content-type") or JSON)
        if media != JSON:
            raise ApiError(415, f'the body of the request was in an unknown format ("{media}"); send {JSON}')
        limits = self._services.limits
        most = max(limits.body_bytes, MOST_BYTES)
        body = await receive_body(request, most=most, seconds=limits.body_seconds)
        await self._ready()
        answer = HttpAnswer(await serve(request, body))
        return await self._services.read(answer.serialised) if len(body) > LARGE else answer

    # --- verbs ------------------------------------------------------------------------------------------

    async def _filter(self, _: Request, body: bytes) -> Any:
        candidates = await self._parse(messages.read_candidates, body)
        answer = await self._run(self._loaded.filter, candidates.pod, candidates.names, self._services.clock())
        return messages.filter_result(answer, candidates)

    async def _prioritize(self, _: Request, body: bytes) -> Any:
        candidates = await self._parse(messages.read_candidates, body)
        scores = await self._run(self._loaded.scores, candidates.pod, candidates.names, self._services.clock())
        return messages.host_priorities(candidates.names, scores)

    async def _preempt(self, _: Request, body: bytes) -> Any:
        preemption = await self._parse(messages.read_preemption, body)
        victims = await self._run(self._loaded.preemptible, preemption, self._services.clock())
        return messages.preemption_result(victims)

    async def _bind(self, request: Request, body: bytes) -> Any:
        """Answers when the pod is on its node. A repeated call waits for the same binding."""
        assignment = messages.read_assignment(body)
        if not self._services.binds:
            return messages.binding_result(ADVISES)
        # Unique to this process: a planner is not shown its own actor's events, because it knows them.
        actor = f"{self._services.author().actor}/extender-{self._instance}"
        ring = self._services.fan.rings["pod"]
        news = ring.news()
        until = self._services.clock() + (UNSEEN_SECONDS * SECOND if self._services.follows else 0)
        progress: ExtenderPlacement | Underway | None = None
        try:
            while progress is None:
                try:
                    progress = await self._run(
                        self._loaded.bind, assignment, actor=actor, now=self._services.clock()
                    )
                except UnseenPodError:
                    if self._services.clock() >= until:
                        raise
                    await asyncio.wait({news}, timeout=LOOK_AGAIN_SECONDS)
                    news.cancel()
                    news = ring.news()
            self._services.committed()
            while not isinstance(progress, ExtenderPlacement):
                if self._services.fan.stopping or await request.is_disconnected():
                    raise ApiError(503, f"binding {progress.binding} continues; repeat the call to wait for it")
                if self._services.clock() > progress.deadline + OVERTIME_SECONDS * SECOND:
                    raise BindError(
                        f"binding {progress.binding} is past its deadline, and was not ended: "
                        "is a scheduler, a controller or a worker running?"
                    )
                await asyncio.wait({news}, timeout=LOOK_AGAIN_SECONDS)
                news.cancel()
                news = ring.news()
                progress = await self._run(
                    self._loaded.progress, assignment, progress.binding, now=self._services.clock()
                )
        except BindError as error:
            return messages.binding_result(str(error))
        finally:
            news.cancel()
        return messages.binding_result()

    async def _parse(self, read: Callable[[bytes], T], body: bytes) -> T:
        return await self._services.read(read, body) if len(body) > LARGE else read(body)

    # --- the decider ------------------------------------------------------------------------------------

    @property
    def _loaded(self) -> ExtenderDecider:
        if self._decider is None:
            raise _not_loaded()
        return self._decider

    async def _run(self, call: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Run it in a thread, one call at a time: each must see the plan of the previous one."""
        if self._turn is None:
            self._turn = anyio.CapacityLimiter(1)
        return await anyio.to_thread.run_sync(lambda: call(*args, **named), limiter=self._turn)

    async def _ready(self) -> None:
        """ApiError 503 until the world is loaded, and while a followed cluster does not answer.

        kube-scheduler continues without us, or retries; otherwise we would refuse nodes that we do not know yet.
        """
        if self._services.follows:
            trouble = await self._services.read(cluster_trouble, self._services)
            if trouble is not None:
                raise ApiError(503, f"{trouble}; try again", details={"retryAfterSeconds": RETRY_AFTER_SECONDS})
        if self._decider is not None:
            return
        if self._loading is None:
            self._loading = asyncio.create_task(self._load())
        done, _ = await asyncio.wait({self._loading}, timeout=LOADING_SECONDS)
        if not done:
            raise _not_loaded()
        loading, self._loading = self._loading, None
        if loading is not None:
            loading.result()

    async def _load(self) -> None:
        services = self._services

        def submit(command: Command) -> object:
            return services.writer.submit(command).result()

        decider = ExtenderDecider(services.database, self._configuration, new_uid, submit, services.follows)
        await self._run(decider.picture.catch_up, services.clock())
        self._decider = decider


def _not_loaded() -> ApiError:
    return ApiError(503, NOT_LOADED, details={"retryAfterSeconds": RETRY_AFTER_SECONDS})
