"""Bodies as they come in: how much of one is taken, and how long it may take."""

import asyncio

from starlette.requests import Request

from volsched.api.kubernetes.statuses import ApiError


async def receive_body(request: Request, *, most: int, seconds: float) -> bytes:
    """The whole body; ApiError 413 where it is too large, 408 where it does not come, 415 where it is packed."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(415, "compressed bodies are not read; send it without Content-Encoding")
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length[:20]) > most:
        raise _too_large(most)
    parts: list[bytes] = []
    total = 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                total += len(part)
                if total > most:
                    raise _too_large(most)
                parts.append(part)
    except TimeoutError:
        raise ApiError(408, f"the body did not arrive within {seconds:g} s") from None
    return b"".join(parts)


def _too_large(most: int) -> ApiError:
    return ApiError(413, f"Request entity too large: limit is {most}")
