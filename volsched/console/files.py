"""The console's built files over HTTP, or a page that says how to build them.

They contain no data of the store: the page gets it from our API, with the reader's own token. So the files need no
authentication, and the policy sent with them lets the page call this server only.
"""

import gzip
import mimetypes
from collections.abc import Awaitable, Callable
from functools import lru_cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

STATIC = Path(__file__).parent / "static"
INDEX = "index.html"
ASSETS = "assets/"
"""Files whose names change with their contents."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "vary": "accept-encoding",
}
ALWAYS_ASK, FOR_EVER = "no-cache", "public, max-age=31536000, immutable"
NOT_BUILT = b"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>volsched console</title>
<h1>The console is not built here</h1>
<p>This is a source checkout without the console's files. Build them once, with:</p>
<pre>make console</pre>
<p>and load this page again. An installed wheel has them already.</p>
</html>
"""
SMALLEST_PACKED = 1_000


def console_files(
    static: Path = STATIC, *, opened: Callable[[], None] = lambda: None
) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint for everything below `/ui/`; `opened` is called when somebody opens the page."""

    async def file(request: Request) -> Response:
        place = request.path_params["place"] or INDEX
        if not (static / INDEX).is_file():
            return _answer(NOT_BUILT, "text/html; charset=utf-8", ALWAYS_ASK, code=404)
        if place not in _file_names(static):
            return _answer(b"the console has no such file\n", "text/plain", ALWAYS_ASK, code=404)
        if place == INDEX:
            opened()
        status = (static / place).stat()
        packed = "gzip" in request.headers.get("accept-encoding", "") and status.st_size > SMALLEST_PACKED
        media = mimetypes.guess_type(place)[0] or "application/octet-stream"
        media += "; charset=utf-8" if media.startswith("text/") else ""
        caching = FOR_EVER if place.startswith(ASSETS) else ALWAYS_ASK
        answer = _answer(_content(static / place, status.st_mtime_ns, packed), media, caching)
        if packed:
            answer.headers["content-encoding"] = "gzip"
        return answer

    return file


def _answer(content: bytes, media: str, caching: str, *, code: int = 200) -> Response:
    return Response(content, code, {**HEADERS, "content-type": media, "cache-control": caching})


def _file_names(root: Path) -> set[str]:
    """The names that can be requested; a path that leads elsewhere is not among them."""
    return {it.relative_to(root).as_posix() for it in root.rglob("*") if it.is_file()}


@lru_cache(maxsize=64)
def _content(file: Path, _changed: int, packed: bool) -> bytes:
    content = file.read_bytes()
    return gzip.compress(content, mtime=0) if packed else content
