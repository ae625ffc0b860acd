"""What keeps the house in order (`make lint`): names, statements and tests are where a newcomer looks for them.

    python -m tools.house

Import directions are import-linter's. Each check reads text only, so that all of them take less than a second.
"""

import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
TERMS = frozenset({"binding", "matching", "provisioning", "scheduling", "scoring", "simulated", "pod_scheduled"})
"""Terms of the field that end as a gerund or participle does."""
NO_NOUN = re.compile(r"(ing|ed|told|said|seen|held|made|found|kept|known|shown)$")
CLASS = re.compile(r"^class ([A-Z]\w*)", re.M)
STATEMENT = re.compile(r"^\s*from sqlalchemy[\w.]* import (?P<names>\([^)]*\)|[^\n]*)", re.M)
TABLES = re.compile(r"^\s*from volsched\.log(\.tables import|\s+import .*\btables\b)", re.M)
TYPES_OF_SQL = frozenset({"Connection", "Row"})
OBJECT_EVENT = re.compile(r"\bNewEvent\((?:[^()]|\([^()]*\))*?\btype=f?\"[^\"]*(?:Created|Changed|Deleted)\"")
ABSENT = re.compile(
    r"\b(behaviour|design|gotcha),? (section |appendix )?[0-9A-B][0-9.]*\b"
    r"|\bthe design's\b|\bof the design\b|\bthe seeds'",
    re.I,
)
TEST_IMPORT = re.compile(r"^\s*(from|import) tests[\w.]*\.test_\w+|^\s*from tests[\w.]* import .*\btest_", re.M)
NUMBERED = re.compile(r"(review|findings|gotcha|checklist|_\d+$)")
OUTSIDE_REGISTRY = {
    "volsched/cli/": re.compile(r"""\.get\(\s*(paths\.)?own\(|"GET",\s*(paths\.)?own\(|/apis/volsched\.io/v1/"""),
    "volsched/api/questions/": re.compile(r'method="GET"'),
}
"""Asking our API by a path, and answering there, without a declaration."""
SCHEMAS = "volsched/api/questions/models.py"
"""Its classes are called as the schemas that clients see."""
NO_PYTHON = frozenset({"__pycache__", "node_modules", "web"})
SUITES = frozenset({"live", "project", "stack", "support"})
"""Folders of tests about the whole, and what tests share."""


def modules(*tops: str) -> Iterator[tuple[Path, str]]:
    for top in tops:
        yield from _texts(top)


@cache
def _texts(top: str) -> list[tuple[Path, str]]:
    """Read once for all checks. The console's sources hold no Python, and installed modules by the thousand."""
    found = []
    for folder, below, names in os.walk(ROOT / top):
        below[:] = [name for name in below if name not in NO_PYTHON]
        found += [Path(folder, name) for name in names if name.endswith(".py")]
    return [(path.relative_to(ROOT), path.read_text()) for path in sorted(found)]


def misnamed() -> Iterator[str]:
    for path, _ in modules("volsched", "workers"):
        if path.stem not in TERMS and NO_NOUN.search(path.stem):
            yield f"{path}: a module is a noun that somebody would search for"


def double_classes() -> Iterator[str]:
    homes: dict[str, list[Path]] = defaultdict(list)
    for path, text in modules("volsched", "workers"):
        if path.as_posix() != SCHEMAS:
            for name in CLASS.findall(text):
                homes[name].append(path)
    for name, paths in sorted(homes.items()):
        if len(paths) > 1:
            yield f"{name}: a public class name exists once, and this is in {', '.join(map(str, paths))}"


def statements() -> Iterator[str]:
    for path, text in modules("volsched", "workers"):
        if path.parts[1] in ("log", "lab"):
            # The lab looks at stores from outside, and breaks them on purpose.
            continue
        names = {
            name.strip(" ()\n") for found in STATEMENT.finditer(text) for name in found["names"].split(",")
        } - {""}
        if names - TYPES_OF_SQL or TABLES.search(text):
            yield f"{path}: statements are built in volsched/log"


def undeclared_questions() -> Iterator[str]:
    for top, pattern in OUTSIDE_REGISTRY.items():
        for path, text in modules(top):
            for found in pattern.finditer(text):
                line = text.count("\n", 0, found.start()) + 1
                yield f"{path}:{line}: a question is declared in volsched/questions, and asked by its name"


def object_events() -> Iterator[str]:
    for path, text in modules("volsched", "workers"):
        if path.parts[1] in ("objects", "lab"):
            # The lab makes histories for its measurements, and never in a store of a user.
            continue
        for found in OBJECT_EVENT.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield f"{path}:{line}: events of objects are made by volsched/objects/rules/object_events.py"


def absent_documents() -> Iterator[str]:
    for path, text in modules("volsched", "workers", "tests"):
        for found in ABSENT.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield f"{path}:{line}: {found.group(0)!r} refers to a document that is not in this repository"


def misplaced_tests() -> Iterator[str]:
    rooms = {path.name for path in (ROOT / "volsched").iterdir() if path.is_dir()} | SUITES
    single = {path.stem for path in (ROOT / "volsched").glob("*.py")}
    for path, text in modules("tests"):
        if len(path.parts) > 2 and path.parts[1] not in rooms:
            yield f"{path}: mirrors no room of volsched/"
        if len(path.parts) == 2 and path.name.startswith("test_") and path.stem[5:] not in single:
            yield f"{path}: mirrors no room of volsched/"
        if NUMBERED.search(path.stem):
            yield f"{path}: a test file is named after its subject"
        if TEST_IMPORT.search(text):
            yield f"{path}: imports a test module; what tests share is in tests/support"


CHECKS = (
    misnamed,
    double_classes,
    statements,
    undeclared_questions,
    object_events,
    absent_documents,
    misplaced_tests,
)


def main() -> int:
    problems = [problem for check in CHECKS for problem in check()]
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
