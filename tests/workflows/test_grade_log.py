"""``swe-argo grade-log``: saved logs of real runs, by current rows and by classic ones."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from tests.paths import DATA, needs_data
from tests.workflows.command import swe_argo

pytestmark = needs_data
ROWS = str(DATA / "swebench" / "verified_test.parquet")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    with tarfile.open(DATA / "swebench" / "harness_logs.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def test_a_whole_folder_is_graded_in_one_process(logs: Path) -> None:
    done = swe_argo("grade-log", "-d", ROWS, "--corpus", str(logs / "verified"))
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 87
    for report in found:
        ((instance_id, verdict),) = report.items()
        expected = json.loads((logs / "verified" / instance_id / "expected_5.0.2.json").read_text())
        assert verdict == expected, instance_id


@pytest.mark.parametrize("rows", ["verified_test", "verified_test_classic"])
def test_one_log_prints_the_official_report(logs: Path, rows: str) -> None:
    name = sorted(path.name for path in (logs / "verified").iterdir())[0]
    log = logs / "verified" / name / "test_output.txt"
    words = ["grade-log", "-d", str(DATA / "swebench" / f"{rows}.parquet"), "-i", name, "--log", str(log)]
    done = swe_argo(*words, "--patch", str(log.with_name("patch.diff")))
    assert done.returncode == 0, done.stderr
    expected = json.loads(log.with_name("expected_5.0.2.json").read_text())
    assert done.stdout == json.dumps({name: expected}, indent=4) + "\n"
