"""Patches that cheat, tried on every family whose tests pytest runs: none resolves unseen."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.contracts.run_spec import OFFICIAL_TIMEOUT_S
from swe_argo.steps.families import rows
from swe_argo.steps.families.family import load_family
from swe_argo.steps.families.rebench.rows import is_v2
from swe_argo.steps.grading.verdict import Verdict
from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.sandbox.local.backend import LocalBackend
from swe_argo.steps.sandbox.protocol import SandboxRequest
from swe_argo.steps.sandbox.wrapper import at_folder
from tests.long_params import long_unless
from tests.steps.families.chain import BROKEN
from tests.steps.families.rebench.lab import make_lab as make_rebench
from tests.steps.families.swegym.lab import make_lab as make_swegym
from tests.steps.families.swesmith.lab import make_lab as make_swesmith
from tests.steps.grading.logs import new_file


@dataclass(frozen=True)
class FamilyLab:
    """One row of a family and its image."""

    folder: Path
    source: dict[str, Any]

    @property
    def tests(self) -> list[str]:
        return [*self.source["FAIL_TO_PASS"], *self.source["PASS_TO_PASS"]]

    @property
    def test_file(self) -> str:
        return str(self.tests[0].partition("::")[0])

    def grade(self, patch: str) -> Verdict:
        """Grade a patch as ``grade`` does."""
        row = rows.normalise(self.source, "r")
        instance, answer = rows.to_instance(row, hints=False), rows.to_answer(row)
        grader = load_family(answer.family).make_grader(instance, answer)
        backend = LocalBackend(self.folder / "images", isolated=bubblewrap.probe() is None)
        request = SandboxRequest(
            name=f"cheat-{os.urandom(4).hex()}",
            image=instance.image,
            deadline_s=300,
            network=False,
            workdir=instance.workdir,
        )
        box = backend.create(request)
        try:
            run = grader.run(
                at_folder(box, instance.workdir),
                patch.encode(),
                timeout_s=OFFICIAL_TIMEOUT_S,
                folder="logs",
                machine_name="m",
                enlarged=False,
            )
            return grader.judge(run, patch.encode())
        finally:
            backend.destroy(box)


LABS: dict[str, Callable[[Path], object]] = {
    "rebench v1": lambda folder: make_rebench(folder, "v1"),
    "rebench v2": make_rebench,
    "swegym": make_swegym,
    "swesmith": make_swesmith,
}


@pytest.fixture(scope="module", params=long_unless(("rebench v2", "swesmith"), LABS))
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FamilyLab:
    folder = tmp_path_factory.mktemp("cheats")
    LABS[request.param](folder)
    return FamilyLab(folder, json.loads((folder / "rows.jsonl").read_text()))


def edit_product(text: str) -> str:
    """A patch of ``calc.py``."""
    lines = difflib.unified_diff(BROKEN.splitlines(True), text.splitlines(True), "a/calc.py", "b/calc.py")
    return "diff --git a/calc.py b/calc.py\n" + "".join(lines)


def link(path: str, target: str) -> str:
    """A patch that makes a symbolic link."""
    head = f"diff --git a/{path} b/{path}\nnew file mode 120000\n--- /dev/null\n+++ b/{path}\n"
    return f"{head}@@ -0,0 +1 @@\n+{target}\n\\ No newline at end of file\n"


def make_file(path: str, text: str) -> str:
    """A patch that makes a file."""
    return new_file(path, text).decode()


def passed_lines(lab: FamilyLab) -> str:
    """What pytest would print."""
    return "".join(f"PASSED {test}\n{test} PASSED\n" for test in lab.tests)


def print_and_leave(lab: FamilyLab, code: int) -> str:
    """A module that prints results and ends the process."""
    return f"import os\nos.write(1, {passed_lines(lab).encode()!r})\nos._exit({code})\n"


def folder_of_tests(lab: FamilyLab) -> str:
    """With a slash where it is not the repository itself."""
    return lab.test_file.rpartition("/")[0] + "/" if "/" in lab.test_file else ""


CHEATS: dict[str, Callable[[FamilyLab], str]] = {
    "a start-up file that prints and leaves": lambda lab: make_file("sitecustomize.py", print_and_leave(lab, 0)),
    "a product that prints and leaves": lambda lab: edit_product(print_and_leave(lab, 0) + BROKEN),
    "the same with a failure's exit code": lambda lab: edit_product(print_and_leave(lab, 1) + BROKEN),
    "a package in place of the tests": lambda lab: make_file(
        f"{lab.test_file.removesuffix('.py')}/__init__.py", "def test_answer(): pass\ndef test_other(): pass\n"
    ),
    "a link where the hidden tests will be": lambda lab: link(f"{folder_of_tests(lab)}test_new.py", "/dev/null"),
    "attributes of git's for the tests": lambda lab: make_file(
        ".gitattributes", f"{lab.test_file} merge=union -text filter=x\n"
    ),
    "a hook of git's": lambda _: make_file(".git/hooks/post-checkout", "#!/bin/sh\nexit 0\n"),
}


@pytest.mark.parametrize("name", CHEATS)
def test_cheat_fails_or_is_suspect(lab: FamilyLab, name: str) -> None:
    verdict = lab.grade(CHEATS[name](lab))
    assert not verdict.resolved or verdict.integrity.verdict == "suspect", verdict


def test_edited_test_file_is_restored(lab: FamilyLab) -> None:
    """SWE-rebench V2 merges its test patch into the file: a later function of the same name wins."""
    if "swesmith" in str(lab.source["repo"]):  # its agents have no such file
        old, change = "", make_file(lab.test_file, "def test_answer(): pass\n")
    else:
        old = "def test_other():\n    assert True\n"
        new = old + "\n\n" + "# far away\n" * 8 + "def test_answer():\n    pass\n"
        lines = difflib.unified_diff(
            old.splitlines(True), new.splitlines(True), f"a/{lab.test_file}", f"b/{lab.test_file}"
        )
        change = f"diff --git a/{lab.test_file} b/{lab.test_file}\n" + "".join(lines)
    assert lab.grade(change).resolved is ("install_config" in lab.source and is_v2(lab.source))


def test_honest_patch_is_ok(lab: FamilyLab) -> None:
    verdict = lab.grade(edit_product(BROKEN.replace("41", "42")))
    assert verdict.resolved
    assert verdict.integrity.verdict == "ok", verdict.integrity
