"""Checks of the house rules (`make lint`): names, SQL statements and tests are where a newcomer looks for them.

    python -m tools.house [DIRECTORY]

Import directions are import-linter's. Each check reads texts or syntax trees and imports nothing, so that each
takes less than a second.
"""

import ast
import os
import re
import sys
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(sys.argv[1]) if __name__ == "__main__" and len(sys.argv) > 1 else Path(__file__).parents[1]
TERMS = frozenset({"binding", "matching", "provisioning", "scheduling", "scoring", "simulated", "pod_scheduled"})
"""Technical terms that end like a gerund or participle."""
NO_NOUN = re.compile(r"(ing|ed|told|said|seen|held|made|found|kept|known|shown)$")
CLASS = re.compile(r"^class ([A-Z]\w*)", re.M)
STATEMENT = re.compile(r"^\s*from sqlalchemy[\w.]* import (?P<names>\([^)]*\)|[^\n]*)", re.M)
TABLES = re.compile(r"^\s*from volsched\.log(\.tables import|\s+import .*\btables\b)", re.M)
TYPES_OF_SQL = frozenset({"Connection", "Row"})
OBJECT_EVENT = re.compile(r"\bNewEvent\((?:[^()]|\([^()]*\))*?\btype=f?\"[^\"]*(?:Created|Changed|Deleted)\"")
LIFE_EVENT = re.compile(r"\b(?:created|deleted)_event\b")
CHANGE_EVENT = re.compile(r"\bchanged_event\b")
DECIDES_CHANGES = frozenset({
    "volsched/binding/executor.py", "volsched/binding/rules/failures.py", "volsched/binding/rules/plan.py",
    "volsched/binding/rules/reservations.py", "volsched/binding/rules/saga.py",
    "volsched/pv_controller/rules/rollback.py", "volsched/scheduling/unschedulable.py",
    "volsched/workloads/rules/repairs.py",
})  # fmt: skip
"""Rules that change a part of an object in the transaction that has read it; all others go through the door."""
ABSENT = re.compile(
    r"\b(behaviour|design|gotcha),? (section |appendix )?[0-9A-B][0-9.]*\b"
    r"|\bthe design's\b|\bof the design\b|\bthe seeds'",
    re.I,
)
PRONOUNS = frozenset({"it", "found", "asked", "held", "made", "told", "seen"})
_ANY = "|".join(sorted(PRONOUNS))
BOUND = re.compile(
    rf"^\s*for [^\n]*\b({_ANY})\b[^\n]* in |\b({_ANY})(, [\w, ]+)? :?= |\b({_ANY}): | as ({_ANY})\b", re.M
)
"""Text that may bind a pronoun; files without it need no syntax tree."""
PRONOUN = re.compile(rf"^(?!\s*#).*\b({_ANY})\b")
ONE_LINER = 3
"""Lines over which a local variable may be called by a pronoun."""
NAMED = ("kube", "log", "objects", "scheduling", "binding", "pv_controller", "provisioning", "node_agent",
         "workloads", "runtime", "lab", "questions", "api", "cluster", "console", "cli")  # fmt: skip
"""Rooms in which no local variable is a pronoun any more."""
NAMELESS = frozenset({*PRONOUNS, "said"})
"""Words that say nothing in the name of a function, class or type, nor as the name of a field or keyword."""
NAMES_OF_OTHERS = ("NotFoundError", "connection_made", "is_held", "not_found")
"""Ends of names: Kubernetes' words, asyncio's, and that of locks and leases."""
STORED_FIELDS = frozenset({"AttemptState.made"})
"""Snapshots of states hold the names of their fields."""
DEFINITION = re.compile(r"^(?:\s*(?:async )?(?:def|class) (?=\w)|(?=_?[A-Z][a-z]\w* = ))(\w+)", re.M)
"""The definition of a function, a class or a type alias."""
WORD = re.compile(r"[A-Z]?[a-z]+")
_NAMELESS = "|".join(sorted(NAMELESS))
ANNOTATED = re.compile(rf"(?m:^ +_?|, )({_NAMELESS}): \w")
"""Text that may name a field or a keyword so; files without it need no syntax tree."""
ATTRIBUTE = re.compile(rf"self\._?({_NAMELESS})(?:: [^\n=]+)? = ")
TEST_IMPORT = re.compile(r"^\s*(from|import) tests[\w.]*\.test_\w+|^\s*from tests[\w.]* import .*\btest_", re.M)
NUMBERED = re.compile(r"(review|findings|gotcha|checklist|regressions|tricky|_\d+$)")
OUTSIDE_REGISTRY = {
    "volsched/cli/": re.compile(r"""\.get\(\s*(paths\.)?own\(|"GET",\s*(paths\.)?own\(|/apis/volsched\.io/v1/"""),
    "volsched/api/questions/": re.compile(r'method="GET"'),
}
"""Requests to our API by path, and endpoints there, that are not declared in the registry."""
SCHEMAS = "volsched/api/questions/models.py"
"""Its classes have the names of the schemas that clients see."""
NO_PYTHON = frozenset({"__pycache__", "node_modules", "web"})
SUITES = frozenset({"live", "project", "stack", "support"})
"""Folders of tests of the whole system, and of code that tests share."""


def modules(*tops: str) -> Iterator[tuple[Path, str]]:
    for top in tops:
        yield from _texts(top)


@cache
def _texts(top: str) -> list[tuple[Path, str]]:
    """Read once for all checks. Skips the console's sources: no Python, but thousands of installed modules."""
    found = []
    for folder, below, names in os.walk(ROOT / top):
        below[:] = [name for name in below if name not in NO_PYTHON]
        found += [Path(folder, name) for name in names if name.endswith(".py")]
    return [(path.relative_to(ROOT), path.read_text()) for path in sorted(found)]


def misnamed() -> Iterator[str]:
    for path, _ in modules("volsched", "workers"):
        name = path.parent.name if path.stem == "__init__" and len(path.parts) > 2 else path.stem
        if name not in TERMS and NO_NOUN.search(name):
            yield f"{path}: a module is a noun that somebody would search for"


def pronouns() -> Iterator[str]:
    for path, text in modules(*(f"volsched/{room}" for room in NAMED), "workers"):
        if not BOUND.search(text):
            continue
        lines = [number for number, line in enumerate(text.split("\n"), 1) if PRONOUN.search(line)]
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                within = lines[bisect_left(lines, function.lineno) : bisect_right(lines, function.end_lineno or 0)]
                if not within or within[-1] - within[0] < ONE_LINER:
                    continue
                for name, first, last in _pronouns_of(function):
                    if last - first >= ONE_LINER:
                        length = last - first + 1
                        yield f"{path}:{first}: {name!r} is used over {length} lines of {function.name}: name it"


def _pronouns_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, int, int]]:
    """Each with its first and last line; without keywords, which callers say, and what comprehensions bind."""
    keywords = {argument.arg for argument in function.args.kwonlyargs}
    lines: dict[str, list[int]] = defaultdict(list)
    left: list[tuple[ast.AST, frozenset[str]]] = [(function, PRONOUNS - keywords)]
    while left:
        node, names = left.pop()
        name = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else ""
        if name in names:
            lines[name].append(getattr(node, "lineno", 0))
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            names -= {
                each.id for part in node.generators for each in ast.walk(part.target) if isinstance(each, ast.Name)
            }
        elif isinstance(node, ast.Lambda):
            names -= {argument.arg for argument in node.args.args}
        left += [(below, names) for below in ast.iter_child_nodes(node)]
    for name, places in lines.items():
        yield name, min(places), max(places)


def nameless() -> Iterator[str]:
    for path, text in modules("volsched", "workers"):
        for found in DEFINITION.finditer(text):
            words = {word.lower() for word in WORD.findall(found[1])}
            if words & NAMELESS and not found[1].endswith(NAMES_OF_OTHERS):
                yield _namelessness(path, text, found.start(1), found[1])
        for found in ATTRIBUTE.finditer(text):
            yield _namelessness(path, text, found.start(1), found[1])
        if ANNOTATED.search(text):
            for node in ast.walk(ast.parse(text)):
                for name in _keywords_and_fields(node):
                    yield f"{path}:{getattr(node, 'lineno', 0)}: {name!r} says nothing: name the thing"


def _namelessness(path: Path, text: str, at: int, name: str) -> str:
    return f"{path}:{text.count(chr(10), 0, at) + 1}: {name!r} says nothing: name the thing, or what is done"


def _keywords_and_fields(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from (it.arg for it in node.args.kwonlyargs if it.arg in NAMELESS)
    if isinstance(node, ast.ClassDef):
        for line in node.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                name = line.target.id
                if name.lstrip("_") in NAMELESS and f"{node.name}.{name}" not in STORED_FIELDS:
                    yield name


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
        patterns = [OBJECT_EVENT, LIFE_EVENT]
        if str(path) not in DECIDES_CHANGES:
            patterns.append(CHANGE_EVENT)
        for match in (match for pattern in patterns for match in pattern.finditer(text)):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: events of objects are made by volsched/objects; write through objects/door.py"


def absent_documents() -> Iterator[str]:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    documents = ((path.relative_to(ROOT), path.read_text()) for path in pages)
    for path, text in (*modules("volsched", "workers", "tests"), *documents):
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
    pronouns,
    nameless,
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
