"""A caller that asks for a lot at once, and how long everybody else waits for an answer meanwhile."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

ITEMS = 20_000
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
NAMESPACE = "/api/v1/namespaces/default"
JSON, YAML = "application/json", "application/yaml"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
REQUEST_SECONDS = 120.0


@dataclass(slots=True)
class HeavyCaller:
    url: str
    name: str
    longest: float = 0.0
    """Seconds that `/livez`, or a small write, took while the large request was worked on."""
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=REQUESTS[self.name], args=(self,), name=self.name, daemon=True)
        self._thread.start()

    def look(self) -> bool:
        """Ask for a little, as others do; answers whether the large request has been answered."""
        done = not self._thread.is_alive()
        for method, path, body in (
            ("GET", "/livez", None),
            ("PATCH", NAMESPACE, {"metadata": {"annotations": {"volsched.io/drill": str(time.time())}}}),
        ):
            begun = time.monotonic()
            self.send(method, path, None if body is None else json.dumps(body).encode(), MERGE)
            self.longest = max(self.longest, time.monotonic() - begun)
        return done

    def send(self, method: str, path: str, body: bytes | None, form: str) -> None:
        """That it is refused is an answer too."""
        asked = urllib.request.Request(self.url + path, body, {"content-type": form}, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=REQUEST_SECONDS) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            error.close()


def _hot_patch(caller: HeavyCaller) -> None:
    """Many finalizers, put in another order: work that was done under the log's lock once."""
    finalizers = [f"drill.example.com/f{number}" for number in range(ITEMS)]
    claim: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "hot", "finalizers": finalizers},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    caller.send("POST", CLAIMS, json.dumps(claim).encode(), JSON)
    turned = finalizers[::-1]
    patch = {"metadata": {"$setElementOrder/finalizers": turned, "finalizers": turned}}
    caller.send("PATCH", f"{CLAIMS}/hot", json.dumps(patch).encode(), STRATEGIC)
    # Gone again, so that nobody has to look after it.
    caller.send("PATCH", f"{CLAIMS}/hot", b'{"metadata":{"finalizers":null}}', MERGE)
    caller.send("DELETE", f"{CLAIMS}/hot", None, JSON)


def _slow_body(caller: HeavyCaller) -> None:
    """As much YAML as a request may hold, and more, to what everybody may ask: it was read in the event loop."""
    lines = "".join(f"  - k{number}: [1, 2, 3, a, b, c]\n" for number in range(ITEMS * 4))
    for path, most in ((REVIEWS, 2_900_000), (CLAIMS, 500_000)):
        for _ in range(3):
            caller.send("POST", path, f"spec:\n  extra:\n{lines[:most].rpartition('  -')[0]}".encode(), YAML)


REQUESTS: dict[str, Callable[[HeavyCaller], None]] = {"patch": _hot_patch, "yaml": _slow_body}
