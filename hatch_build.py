"""The wheel's bill of materials (CycloneDX, PEP 770), from the locks: what it needs, which versions, which hashes.

A build hook, so that no wheel is built without one. It needs the standard library and the build backend only,
writes no time and no address, and so gives the same bytes for the same locks.
"""

import json
import re
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BASE, ALL = "locks/base.lock", "locks/image.lock"
"""What the program cannot do without, and with what the extras `stack` and `server` add."""
PIN = re.compile(r"(?P<name>[a-z0-9][a-z0-9.-]*)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\]+?))? \\$")
HASH = re.compile(r"--hash=sha256:(?P<hash>[0-9a-f]{64})")
VIA = re.compile(r"# via (?P<names>.+)")


class LockError(ValueError):
    """A line of a lock that says nothing we know."""


@dataclass(frozen=True)
class Pin:
    name: str
    version: str
    marker: str | None
    hashes: tuple[str, ...]
    wanted_by: tuple[str, ...]

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def read_lock(file: Path) -> list[Pin]:
    """Every pin with its hashes and who wants it. Raises LockError."""
    pins: list[tuple[re.Match[str], list[str], list[str]]] = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if pin := PIN.fullmatch(line):
            pins.append((pin, [], []))
        elif pins and (found := HASH.match(line.strip())):
            pins[-1][1].append(found["hash"])
        elif pins and (found := VIA.match(line.strip())):
            names = (it.strip().partition(" ")[0] for it in found["names"].split(","))
            pins[-1][2].extend(it for it in names if not it.startswith("-"))
        else:
            raise LockError(f'{file}, line {number}: "{line}" is no pin, hash or origin; run: make lock')
    return [
        Pin(pin["name"], pin["version"], pin["marker"], tuple(hashes), tuple(names)) for pin, hashes, names in pins
    ]


def bill(root: Path, name: str, version: str) -> dict[str, Any]:
    """The CycloneDX document of a wheel of this name and version."""
    base = {it.name for it in read_lock(root / BASE)}
    pins = read_lock(root / ALL)
    ours = f"pkg:pypi/{name}@{version}"
    references = {name: ours, **{it.name: it.purl for it in pins}}
    document: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "build"}],
            "component": {
                "type": "application",
                "bom-ref": ours,
                "name": name,
                "version": version,
                "purl": ours,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": [_component(it, required=it.name in base) for it in pins],
        "dependencies": [
            {
                "ref": reference,
                "dependsOn": sorted({it.purl for it in pins if wanting in it.wanted_by}),
            }
            for wanting, reference in references.items()
        ],
    }
    # By what it says: the same document has the same number, wherever it was built.
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True))}"
    return document


def _component(pin: Pin, *, required: bool) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": pin.purl,
        "name": pin.name,
        "version": pin.version,
        "purl": pin.purl,
        "scope": "required" if required else "optional",
        # One for each file that the lock admits: wheels of all platforms, and the source.
        "externalReferences": [
            {
                "type": "distribution",
                "url": pin.purl,
                "hashes": [{"alg": "SHA-256", "content": it} for it in pin.hashes],
            }
        ],
    }
    if pin.marker is not None:
        component["properties"] = [{"name": "volsched:marker", "value": pin.marker}]
    return component


class BillOfMaterials(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        name, number = self.metadata.core.name, self.metadata.version
        self._directory = tempfile.TemporaryDirectory()
        file = Path(self._directory.name, f"{name}.cdx.json")
        file.write_text(json.dumps(bill(Path(self.root), name, number), indent=1) + "\n")
        build_data["sbom_files"].append(str(file))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        if version != "editable":
            self._directory.cleanup()
