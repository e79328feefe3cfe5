from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from swe_argo.steps.agents.formats import reading
from swe_argo.steps.agents.formats.writers import Format
from swe_argo.steps.contracts.data import Instance, Patch, Plan, RunFile, Stage, Unit
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.trajectory import Trajectory
from swe_argo.steps.contracts.verdict import GradeRecord, Outcome, TestLog
from swe_argo.steps.datasets import predictions
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.export import export
from swe_argo.steps.store import Store, open_store
from tests.steps.agents.solved_units import PATCH, Call, grade, instance, run_file, trajectory

IDS = ["django__django-1", "django__django-2", "django__django-3"]
LOOK: Call = ("execute_bash", {"cmd": "ls"}, "a.py\n")
FINISH: Call = ("finish", {"command": "submit"}, "")


def fill(store: Store, *, attempts: int = 1, agent: str = "r2egym", solved: int = 2) -> None:
    """A run of three units: ``solved`` of them are."""
    units = [
        Unit(instance_id=instance_id, attempt=attempt, begins=Stage.SOLVE, repo="django/django", image="i")
        for instance_id in IDS
        for attempt in range(1, attempts + 1)
    ]
    store.put(key(RunFile, "night"), run_file(agent, attempts=attempts).to_bytes())
    store.put(key(Plan, "night"), Plan(run_id="night", units=units).to_bytes())
    for unit in units:
        name = ("night", unit.instance_id, unit.attempt)
        store.put(key(Instance, *name), instance(unit.instance_id).to_bytes())
        if unit.instance_id in IDS[:solved]:
            store.put(key(Patch, *name), PATCH.encode())
            store.put(key(TestLog, *name), b"1 passed\n")
            store.put(key(GradeRecord, *name), grade(Outcome.RESOLVED, unit.instance_id).to_bytes())
            if agent != "gold":
                whole = trajectory([LOOK], [FINISH], agent=agent, instance_id=unit.instance_id)
                store.put(key(Trajectory, *name), whole.to_bytes())


@pytest.fixture
def store(store: Store) -> Store:
    fill(store)
    return store


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("form", "files"),
    [
        ("r2egym", ["night.jsonl"]),
        ("preds", ["all_preds.jsonl"]),
        ("openhands", ["metadata.json", "output.jsonl"]),
        ("sweagent", [*(f"{one}/{one}.traj" for one in IDS[:2]), "preds.json"]),
        ("mini", [*(f"{one}/{one}.traj.json" for one in IDS[:2]), "preds.json"]),
        ("atif", [f"{one}/{file}" for one in IDS[:2] for file in ("patch.diff", "trajectory.json")]),
    ],
)
def test_export_writes_files_of_format(store: Store, tmp_path: Path, form: Format, files: list[str]) -> None:
    exported = export(store, "night", form, tmp_path / "out")
    assert names(tmp_path / "out") == files
    assert exported.units == 2
    assert exported.notices[0].startswith("1 unit has no ")
    assert exported.notices[0].endswith(": django__django-3")


def test_bucket_export_equals_folder(bucket: str, store: Store, tmp_path: Path) -> None:
    remote = open_store(f"s3://{bucket}/team", create=True)
    fill(remote)
    for form in get_args(Format):
        export(remote, "night", form, tmp_path / "s3" / form)
        export(store, "night", form, tmp_path / "folder" / form)
    assert names(tmp_path / "s3") == names(tmp_path / "folder")
    for name in names(tmp_path / "folder"):
        assert (tmp_path / "s3" / name).read_bytes() == (tmp_path / "folder" / name).read_bytes()


@pytest.mark.parametrize("form", ["sweagent", "mini", "atif"])
def test_exported_trajectories_replay(store: Store, tmp_path: Path, form: Format) -> None:
    export(store, "night", form, tmp_path / "out")
    replayable = reading.read(str(tmp_path / "out"), dict.fromkeys(IDS[:2], "/testbed"), IDS)
    assert replayable.model == "openai/m"
    for recording in replayable.by_id.values():
        assert [(action.tool, action.arguments) for action in recording.actions] == [LOOK[:2], FINISH[:2]]
        assert recording.actions[0].observation == "a.py\n"
        assert (recording.scaffold, recording.patch) == ("r2egym", PATCH)


def test_export_keeps_patch_bytes(store: Store, tmp_path: Path) -> None:
    odd = b"diff --git a/setup.py b/setup.py\n--- a/setup.py\n+++ b/setup.py\n@@ -1 +1 @@\n-caf\xe9\r\n+caf\xc3\xa9\r\n"
    store.put(key(Patch, "night", IDS[0], 1), odd)
    graded: dict[Format, str] = {
        "preds": "all_preds.jsonl",
        "openhands": "output.jsonl",
        "mini": "preds.json",
        "sweagent": "",
    }
    for form, file in graded.items():
        export(store, "night", form, tmp_path / form)
        gradeable = predictions.read(tmp_path / form / file, IDS, IDS)
        assert (gradeable.model, gradeable.patches[IDS[1]]) == ("openai/m", PATCH)
        assert Patch.from_text(gradeable.patches[IDS[0]] or "").data == odd
    assert export(store, "night", "atif", tmp_path / "atif").notices[1:] == []
    assert (tmp_path / "atif" / IDS[0] / "patch.diff").read_bytes() == odd
    assert "not UTF-8" in export(store, "night", "r2egym", tmp_path / "r2egym").notices[-1]


def test_export_has_folder_per_attempt(tmp_path: Path) -> None:
    new_store = open_store(str(tmp_path / "store"), create=True)
    fill(new_store, attempts=2)
    for form in get_args(Format):
        assert export(new_store, "night", form, tmp_path / form).units == 4
        assert sorted(path.name for path in (tmp_path / form).iterdir()) == ["run_1", "run_2"]
    assert names(tmp_path / "mini" / "run_1") == names(tmp_path / "mini" / "run_2")
    assert [row["attempt"] for row in lines(tmp_path / "openhands" / "run_2" / "output.jsonl")] == [2, 2]
    notice = export(new_store, "night", "atif", tmp_path / "again").notices[0]
    assert notice.endswith("have no trajectory and are left out: django__django-3, django__django-3 #2")
    with pytest.raises(ConfigError, match="2 attempts need 2 files: give a folder"):
        export(new_store, "night", "preds", tmp_path / "preds.jsonl")


@pytest.mark.parametrize("form", ["preds", "r2egym"])
def test_export_accepts_file_name(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Format) -> None:
    monkeypatch.chdir(tmp_path)
    assert export(store, "night", form).path == Path("exports/night") / form
    exported = export(store, "night", form, tmp_path / "deep" / "mine.jsonl")
    assert exported.path == tmp_path / "deep" / "mine.jsonl"
    assert len(lines(exported.path)) == 2
    assert names(tmp_path / "deep") == ["mine.jsonl"]


def test_export_replaces_only_with_force(store: Store, tmp_path: Path) -> None:
    places: dict[Format, Path] = {"atif": tmp_path / "out", "preds": tmp_path / "out.jsonl"}
    for form, out in places.items():
        export(store, "night", form, out)
        with pytest.raises(ConfigError, match=r"--out: .*out.* exists: replace it with --force"):
            export(store, "night", form, out)
        before = sorted(tmp_path.iterdir())
        export(store, "night", form, out, force=True)
        assert sorted(tmp_path.iterdir()) == before
    (tmp_path / "empty").mkdir()
    export(store, "night", "atif", tmp_path / "empty")


def test_failed_export_leaves_no_files(store: Store, tmp_path: Path) -> None:
    broken = trajectory([LOOK]).model_dump(mode="json")
    broken["steps"][2]["metrics"] |= {"prompt_token_ids": [1], "extra": {"shared_prompt_ids": 9}}
    store.put(key(Trajectory, "night", IDS[1], 1), json.dumps(broken).encode())
    (tmp_path / "place").mkdir()
    with pytest.raises(ConfigError, match="step 3 shares 9 prompt ids"):
        export(store, "night", "atif", tmp_path / "place" / "out")
    assert list((tmp_path / "place").iterdir()) == []


def test_export_names_broken_trajectory(store: Store, tmp_path: Path) -> None:
    store.put(key(Trajectory, "night", IDS[1], 1), b"{")
    exported = export(store, "night", "r2egym", tmp_path / "out")
    assert exported.units == 1
    assert exported.notices[1] == "1 unit cannot be read: django__django-2"


def test_export_refusals_name_a_remedy(store: Store, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run: there is no run 'day' in .*; swe-argo runs --store .* lists them"):
        export(store, "day", "atif", tmp_path / "out")
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ConfigError, match=r"--out: .* cannot be written: "):
        export(store, "night", "atif", file / "below")
    gold = open_store(str(tmp_path / "gold"), create=True)
    fill(gold, agent="gold")
    with pytest.raises(ConfigError, match="has no trajectories: agent 'gold' does not solve; use --format preds"):
        export(gold, "night", "atif", tmp_path / "out")
    assert export(gold, "night", "preds", tmp_path / "out").units == 2
    none = open_store(str(tmp_path / "none"), create=True)
    fill(none, solved=0)
    missing: dict[Format, str] = {"r2egym": "trajectory", "preds": "patch"}
    for form, missing_thing in missing.items():
        with pytest.raises(
            ConfigError, match=f"no unit of run 'night' has a {missing_thing} yet; for its state: swe-argo show night"
        ):
            export(none, "night", form, tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
