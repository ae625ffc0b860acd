"""What may not come back is found: `make lint` runs these checks on this repository; here they see a small one."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.patience import HANG_SECONDS

SOUND = {
    "volsched/kube/names.py": "class Name:\n    pass\n",
    "volsched/log/rows.py": "from sqlalchemy import select\n",
    "volsched/objects/events.py": 'NewEvent(stream=stream, type="PodCreated", data={})\n',
    "volsched/binding/rules/saga.py": "changed_event(stream, patch)\n",
    "volsched/scheduling/scoring.py": "def best(found: int) -> int:\n    return found\n",
    "tests/kube/test_names.py": "",
    "docs/page.md": "The behaviour of 8 nodes.\n",
}
LONG = "def best(found: int) -> int:\n    most = 0\n    more = most + 1\n    return found + more\n"
MISTAKES = {
    "a module that is no noun": ("volsched/kube/asking.py", "", "a module is a noun"),
    "a package that is no noun": ("volsched/kube/told/__init__.py", "", "a module is a noun"),
    "a pronoun over four lines": ("volsched/kube/scores.py", LONG, "'found' is used over 4 lines of best"),
    "a pronoun in the workers": ("workers/scores.py", LONG, "'found' is used over 4 lines of best"),
    "a function that is called told": ("volsched/kube/notices.py", "def told():\n", "'told' says nothing"),
    "a class that is called Held": ("volsched/kube/notices.py", "class Held:\n", "'Held' says nothing"),
    "a type that is called Found": ("volsched/kube/notices.py", "Found = list[str]\n", "'Found' says nothing"),
    "a field that is called said": (
        "volsched/kube/notices.py", "class Notice:\n    said: str\n", "'said' says nothing",
    ),
    "an attribute that is called seen": (
        "volsched/kube/notices.py", "def note(self):\n    self._seen = 1\n", "'seen' says nothing",
    ),
    "a keyword that is called found": (
        "volsched/kube/notices.py", "def note(\n    *,\n    found: str,\n): ...\n", "'found' says nothing",
    ),
    "a public class twice": ("volsched/cli/words.py", "class Name:\n", "Name: a public class name exists once"),
    "a statement outside the log": (
        "volsched/api/rows.py", "from sqlalchemy import select\n", "statements are built in volsched/log",
    ),
    "tables outside the log": (
        "volsched/questions/rows.py", "from volsched.log import base, tables\n", "statements are built in",
    ),
    "an object that is not written through the door": (
        "volsched/scheduling/pods.py", 'NewEvent(stream=s, type="PodChanged", data={})\n', "events of objects",
    ),
    "an object that is created beside the door": (
        "volsched/workloads/pods.py", "event = created_event(stream, pod)\n", "write through objects/door.py",
    ),
    "a change by a rule that is not known to read first": (
        "volsched/binding/rules/labels.py", "changed_event(stream, patch)\n", "write through objects/door.py",
    ),
    "a question that is asked by its path": (
        "volsched/cli/ask.py", 'client.get(own("effects"))\n', "a question is declared in volsched/questions",
    ),
    "a question that is answered without a declaration": (
        "volsched/api/questions/more.py", 'Route(method="GET")\n', "a question is declared in volsched/questions",
    ),
    "a section of a document that is absent": (
        "docs/more.md", "As " + "behaviour" + " 8.3 says.\n", "refers to a document that is not in this",
    ),
    "tests of no room": ("tests/nowhere/test_names.py", "", "mirrors no room of volsched/"),
    "a test file that is named after a review": (
        "tests/kube/test_second_review.py", "", "a test file is named after its subject",
    ),
    "a test module that imports another": (
        "tests/kube/test_more.py", "from tests.kube.test_names import claim\n", "imports a test module",
    ),
}  # fmt: skip


def checked(directory: Path, files: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    command = [sys.executable, "-m", "tools.house", str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)


def test_an_orderly_house_has_no_complaint(tmp_path: Path) -> None:
    done = checked(tmp_path, SOUND)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_may_not_come_back_is_the_only_complaint(mistake: str, tmp_path: Path) -> None:
    path, text, complaint = MISTAKES[mistake]
    done = checked(tmp_path, {**SOUND, path: text})
    (line,) = done.stdout.splitlines()
    assert complaint in line
    assert path in line
    assert done.returncode == 1
