"""`make digests`: write the digest of every image after its tag, as its registry reports it, and never by hand.

A tag can be moved to another image, a digest cannot. If one digest cannot be read, no file is changed.
"""

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import urlencode, urlsplit

FILES = ("Dockerfile", "docker-compose.yml")
OURS = "volsched"
"""The image that is built here and is in no registry."""
IMAGE = re.compile(
    r"^(?P<before>FROM |\s+image: )(?P<name>[a-z0-9/_.-]+):(?P<tag>[\w.-]+)(?P<digest>@sha256:[0-9a-f]{64})?",
    re.MULTILINE,
)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
PATIENCE_SECONDS = 30

Image = tuple[str, str]
"""Name and tag."""


class RegistryError(Exception):
    """The registry reported no digest; the message says why."""


def images(texts: Iterable[str]) -> list[Image]:
    """Every third-party image, once."""
    found = {(it["name"], it["tag"]) for text in texts for it in IMAGE.finditer(text)}
    return sorted(it for it in found if it[0] != OURS)


def with_digests(text: str, digests: dict[Image, str]) -> str:
    """The text with these digests after their tags; they replace earlier digests."""

    def written(match: re.Match[str]) -> str:
        digest = digests.get((match["name"], match["tag"]))
        return match[0] if digest is None else f"{match['before']}{match['name']}:{match['tag']}@{digest}"

    return IMAGE.sub(written, text)


def registry_digest(registry: str, image: Image) -> str:
    """The digest that a registry's API reports, checked against the manifest it sends. Raises RegistryError."""
    name, tag = image
    # As in Docker, a name without an owner is in `library`.
    path = name if "/" in name else f"library/{name}"
    headers = {"Accept": ", ".join(MANIFESTS)}
    url = f"{registry.rstrip('/')}/v2/{path}/manifests/{tag}"
    try:
        content, said = _get(url, headers)
    except urllib.error.HTTPError as error:
        if error.code != 401:
            raise RegistryError(f"{name}:{tag}: {url} answered {error.code}") from None
        token = _token(error.headers.get("WWW-Authenticate", ""), url)
        try:
            content, said = _get(url, {**headers, "Authorization": f"Bearer {token}"})
        except urllib.error.HTTPError as refused:
            raise RegistryError(f"{name}:{tag}: {url} answered {refused.code}") from None
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if said not in (None, digest):
        raise RegistryError(f"{name}:{tag}: {url} said {said} and sent {digest}")
    return digest


def _get(url: str, headers: dict[str, str]) -> tuple[bytes, str | None]:
    """The body, and the digest in its header. Raises HTTPError, and RegistryError if there is no answer."""
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=PATIENCE_SECONDS
        ) as answer:
            return answer.read(), answer.headers.get("Docker-Content-Digest")
    except urllib.error.HTTPError:
        raise
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise RegistryError(f"no image registry answers at {url} ({reason})") from None


def _token(challenge: str, url: str) -> str:
    """An anonymous token from the issuer that the registry names: it requires one even for public images."""
    wanted = dict(CHALLENGE.findall(challenge))
    realm = wanted.pop("realm", "")
    if urlsplit(realm).scheme not in ("http", "https"):
        raise RegistryError(f"{url} requires authentication, and does not say how")
    try:
        content, _ = _get(f"{realm}?{urlencode(wanted)}", {})
        given = json.loads(content)
        return str(given.get("token") or given["access_token"])
    except urllib.error.HTTPError as error:
        raise RegistryError(f"{realm} answered {error.code}") from None
    except (ValueError, KeyError):
        raise RegistryError(f"{realm} gave no token") from None


def docker_digest(image: Image) -> str:
    """The digest that Docker gets from its configured registry. Raises RegistryError."""
    docker = shutil.which("docker")
    if docker is None:
        raise RegistryError("there is no docker to ask its registry")
    command = [docker, "buildx", "imagetools", "inspect", ":".join(image), "--format", "{{.Manifest.Digest}}"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        raise RegistryError(f"no image registry answered docker within {2 * PATIENCE_SECONDS} s") from None
    digest = told.stdout.strip()
    if told.returncode != 0 or not DIGEST.fullmatch(digest):
        if subprocess.run([docker, "buildx", "version"], capture_output=True).returncode != 0:
            raise RegistryError("no image registry could be asked: this docker has no buildx")
        lines = (told.stderr or told.stdout).strip().splitlines()
        raise RegistryError(f"no image registry answers docker ({lines[0] if lines else 'it said nothing'})")
    return digest


def update(root: Path, ask: Callable[[Image], str], told: Callable[[str], None]) -> None:
    """Read all digests, then write all files. If it raises RegistryError, no file was changed."""
    texts = {root / name: (root / name).read_text() for name in FILES}
    digests = {image: ask(image) for image in images(texts.values())}
    for file, text in texts.items():
        changed = with_digests(text, digests)
        if changed != text:
            file.write_text(changed)
    for (name, tag), digest in digests.items():
        told(f"{name}:{tag}@{digest}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make digests", description=__doc__)
    parser.add_argument("--registry", metavar="URL", help="The registry to ask; else docker asks its own.")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1], help="The directory of the files.")
    given = parser.parse_args()
    try:
        update(
            given.root,
            docker_digest if given.registry is None else lambda image: registry_digest(given.registry, image),
            print,
        )
    except RegistryError as error:
        remedy = "nothing was changed; name a registry that can be reached with: make digests REGISTRY=URL"
        sys.exit(f"error: {error}; {remedy}")


if __name__ == "__main__":
    main()
