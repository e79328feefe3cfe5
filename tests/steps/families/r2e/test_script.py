"""The scripts of R2E-Gym, run by bash over folders that look like its image."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families.r2e import script
from swe_argo.steps.families.r2e.script import ImagePlaces
from swe_argo.steps.families.r2e.verdict import judge

ROW = {
    "repo_name": "pyramid",
    "commit_hash": "c" * 40,
    "expected_output_json": {"test_answer": "PASSED", "test_old": "FAILED"},
}
FIX = "def answer():\n    return 42\n"
TEST = (
    "from code_under_test import answer\n\n"
    "def test_answer():\n    assert answer() == 42\n\n"
    "def test_old():\n    assert 0\n"
)


@pytest.fixture
def places(tmp_path: Path) -> ImagePlaces:
    """An image as R2E-Gym builds it: a repository with a virtual environment, its tests beside it."""
    places = ImagePlaces(*(str(tmp_path / name) for name in ("testbed", "r2e_tests", "root")))
    testbed, tests = Path(places.testbed), Path(places.tests)
    testbed.mkdir()
    (testbed / ".venv").symlink_to(sys.prefix)
    (testbed / "code_under_test.py").write_text("def answer():\n    return 41\n")
    (testbed / "run_tests.sh").write_text(
        script.pytest_command(ROW).replace("pytest", "pytest -p no:cacheprovider") + "\n"
    )
    (tests / "__pycache__").mkdir(parents=True)
    (tests / "test_1.py").write_text(TEST)
    return places


ENVIRONMENT = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
"""Sources change within a second here, which bytecode does not notice."""


def run(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", text], env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=60
    )


def test_verdict_follows_the_test_log(places: ImagePlaces) -> None:
    assert run(script.prepare_script(ROW, places)).returncode == 0
    before = run(script.run_script(places))
    assert judge(before.stdout, ROW).differences == {"test_answer": ("FAILED", "PASSED")}
    (Path(places.testbed) / "code_under_test.py").write_text(FIX)
    after = run(script.run_script(places))
    assert judge(after.stdout, ROW).reward == 1.0
    assert after.returncode == 1  # of pytest: one test must fail


def test_tests_are_hidden_between_runs(places: ImagePlaces) -> None:
    link = Path(places.testbed) / "r2e_tests"
    run(script.prepare_script(ROW, places))
    assert not Path(places.tests).exists()
    assert not link.is_symlink()
    run(script.run_script(places))
    assert not link.is_symlink()
    assert (Path(places.private) / "r2e_tests" / "test_1.py").read_text() == TEST


def test_forged_tests_are_not_run(places: ImagePlaces) -> None:
    run(script.prepare_script(ROW, places))
    forged = Path(places.testbed) / "r2e_tests"
    forged.mkdir()
    (forged / "test_1.py").write_text("def test_answer(): pass\n\ndef test_old(): assert 0\n")
    (Path(places.testbed) / "run_tests.sh").write_text("echo forged\n")
    verdict = judge(run(script.run_script(places)).stdout, ROW)
    assert verdict.differences == {"test_answer": ("FAILED", "PASSED")}


def test_agent_sandbox_has_no_tests(places: ImagePlaces) -> None:
    assert run(script.remove_script(places)).returncode == 0
    assert not Path(places.tests).exists()
    assert not (Path(places.testbed) / "run_tests.sh").exists()


def test_tests_in_repository_are_moved(places: ImagePlaces) -> None:
    """As in the images of sympy."""
    Path(places.tests).rename(Path(places.testbed) / "r2e_tests")
    assert run(script.prepare_script(ROW, places)).returncode == 0
    assert not (Path(places.testbed) / "r2e_tests").exists()
    assert (Path(places.private) / "r2e_tests" / "test_1.py").is_file()


def test_image_without_tests_is_refused(places: ImagePlaces) -> None:
    (Path(places.testbed) / "run_tests.sh").unlink()
    run(script.prepare_script(ROW, places))
    assert (Path(places.private) / "run_tests.sh").read_text().strip() == script.pytest_command(ROW)
    empty = ImagePlaces(places.testbed, f"{places.testbed}/none", f"{places.testbed}/nowhere")
    refused = run(script.prepare_script(ROW, empty))
    assert refused.returncode == script.NO_TESTS
    assert "no hidden tests" in refused.stderr


def test_commands_depend_on_repository() -> None:
    assert script.pytest_command(ROW | {"repo_name": "orange3"}).startswith("QT_QPA_PLATFORM=minimal PYTHONWARNINGS=")
    assert "xvfb-run --auto-servernum .venv/bin/python" in script.pytest_command(ROW | {"repo_name": "orange3"})
    with pytest.raises(ConfigError, match="not one of"):
        script.pytest_command(ROW | {"repo_name": "flask"})
