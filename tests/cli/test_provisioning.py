"""`volsched schedule` makes volumes too: simulated ones always, directories under the root that settings name."""

from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Run
from tests.support.clusters import node
from tests.support.patience import wait_until
from tests.support.storage import ZONE, asked, made_by, using


@pytest.mark.parametrize(("root", "both"), [("volumes", True), (None, False)])
def test_volumes_are_made_where_somebody_said_where(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str | None, both: bool
) -> None:
    if root is not None:
        monkeypatch.setenv("VOLSCHED_HOST_PATH_ROOT", str(tmp_path / root))
    path, db = tmp_path / "cluster.yaml", str(tmp_path / "store.db")
    objects = [node("n1", **{ZONE: "a"})]
    for name, by in (("dirs", "volsched.io/host-path"), ("sims", "volsched.io/simulated")):
        objects += [made_by(by, name), asked(name, "1Gi", name), using(f"app-{name}", name)]
    path.write_text(yaml.safe_dump_all(objects))
    assert run("migrate", "--db", db).code == 0
    assert run("apply", "-f", str(path), "--db", db).code == 0
    placed = f"{2 if both else 1} of 2 pods have a node"
    # Where one has nobody to serve it, the command ends when its time is over, however far it came with the other.
    wait_until(lambda: placed in run("schedule", "--timeout", "1", "--db", db).out)
    if root is not None:
        assert len([it for it in (tmp_path / root).iterdir() if it.name.startswith("pvc-")]) == 1
