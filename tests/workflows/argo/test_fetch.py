"""A run comes whole from its bucket into a folder that is a store, once."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.store import open_store
from swe_argo.workflows.argo.bucket import Bucket
from swe_argo.workflows.argo.fetch import fetch
from swe_argo.workflows.argo.stored_runs import find_bucket as bucket_of


@pytest.fixture
def there(bucket: str) -> Bucket:
    store = open_store(f"s3://{bucket}/team")
    store.put_many(
        {
            "runs/r/run.json": b"{}",
            "runs/r/units/a/1/patch.diff": b"+1\n",
            "runs/r/report/summary.json": b"{1}",
            "runs/rr/run.json": b"another",
        }
    )
    return bucket_of(f"s3://{bucket}/team", None, None)


def plain() -> Console:
    return Console(file=io.StringIO())


def test_all_of_a_run_comes_and_nothing_of_another(there: Bucket, tmp_path: Path) -> None:
    assert fetch(there, "r", tmp_path / "new", plain()) == 3
    assert open_store(str(tmp_path / "new")).keys("runs/") == [
        "runs/r/report/summary.json", "runs/r/run.json", "runs/r/units/a/1/patch.diff",
    ]  # fmt: skip
    assert list(tmp_path.rglob(".*")) == []


def test_what_is_there_stays_and_what_differs_comes_again(there: Bucket, tmp_path: Path) -> None:
    fetch(there, "r", tmp_path, plain())
    before = (tmp_path / "runs/r/run.json").stat().st_ino
    (tmp_path / "runs/r/report/summary.json").write_bytes(b"{2}")  # of the same size
    (tmp_path / "runs/r/units/a/1/patch.diff").unlink()
    assert fetch(there, "r", tmp_path, plain()) == 2
    assert (tmp_path / "runs/r/report/summary.json").read_bytes() == b"{1}"
    assert (tmp_path / "runs/r/run.json").stat().st_ino == before
    assert fetch(there, "r", tmp_path, plain()) == 0


def test_a_verdict_that_was_put_away_in_the_bucket_is_put_away_here_and_nothing_else(
    there: Bucket, tmp_path: Path
) -> None:
    unit, other = "runs/r/units/a/1", "runs/r/units/b/1"
    verdict = {f"{unit}/grade.json": b"{old}", f"{unit}/solve.json": b"{solved}"}
    there.put_many(verdict)
    fetch(there, "r", tmp_path, plain())
    here = open_store(str(tmp_path))
    mine = {f"{unit}/image.tar": b"mine", f"{other}/grade.json": b"{mine}", "runs/r/notes": b"mine"}
    here.put_many(mine)
    there.put_many({name.replace("/1/", "/1/tries/redone-0/"): data for name, data in verdict.items()})
    there.put_many({f"{unit}/tries/redone-0/redone.json": b"{}", f"{unit}/tries/redone-0/report.json": b"{theirs}"})
    here.put(f"{unit}/report.json", b"{my own}")
    fetch(there, "r", tmp_path, plain())
    assert here.get_many(verdict) == verdict, "the bucket has it still: it stands"
    there.delete_many([*verdict, "runs/r/report/summary.json"])
    assert fetch(there, "r", tmp_path, plain()) == 0
    assert here.get_many([*verdict, "runs/r/report/summary.json"]) == {}
    assert here.get_many(mine) == mine
    assert here.get(f"{unit}/report.json") == b"{my own}", "of other bytes than any that the bucket keeps"
    there.put(f"{unit}/grade.json", b"{new}")
    assert fetch(there, "r", tmp_path, plain()) == 1
    assert here.get(f"{unit}/grade.json") == b"{new}"


def test_marks_and_solves_that_a_plan_took_back_are_taken_back_here(there: Bucket, tmp_path: Path) -> None:
    unit, mark = "runs/r/units/a/1", "runs/r/endpoint/early/a/1.json"
    solved = {f"{unit}/grade.json": b"{old}", f"{unit}/solve.json": b"{solved}"}
    there.put_many({**solved, mark: b"{}"})
    fetch(there, "r", tmp_path, plain())
    here = open_store(str(tmp_path))
    assert here.get(mark) == b"{}"
    there.put_many({name.replace("/1/", "/1/tries/retracted-0/"): data for name, data in solved.items()})
    there.delete_many([*solved, mark])
    fetch(there, "r", tmp_path, plain())
    assert here.get_many([*solved, mark]) == {}
    assert here.get(f"{unit}/tries/retracted-0/grade.json") == b"{old}"


def test_a_file_in_several_pieces_is_known_by_its_size(there: Bucket, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"x" * (9 << 20))  # boto3 sends more than 8 MiB in pieces
    there.upload(large, "runs/r/large")
    assert "-" in there.list_objects("runs/r/")["runs/r/large"].etag
    assert fetch(there, "r", tmp_path / "to", plain()) == 4
    assert fetch(there, "r", tmp_path / "to", plain()) == 0


def test_no_such_run_and_no_such_folder_are_one_line(there: Bucket, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no run 'none' in s3://runs-here/team"):
        fetch(there, "none", tmp_path, plain())
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot write to"):
        fetch(there, "r", tmp_path / "file", plain())
    with pytest.raises(ConfigError, match="is no bucket"):
        bucket_of("folder", None, None)
