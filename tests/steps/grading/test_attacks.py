"""Cheats, each run for real on mini: what the official verdict says of it, and that a finding names it."""

from __future__ import annotations

import py_compile
import subprocess
from pathlib import Path

import pytest

from steps.contracts.sandbox_spec import LocalSpec, SandboxSpec
from steps.datasets.mini.folders import prepare
from steps.grading import official
from steps.grading.procedure import run_tests
from steps.grading.verdict import Verdict, judge
from steps.sandbox import open_backend
from steps.sandbox.protocol import SandboxRequest
from tests.steps.grading.attacks import ATTACKS, EMPTY_RUNTEST, ROW, TARGET, Attack, import_in_product
from tests.steps.grading.logs import codes_of


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    prepare(folder, {TARGET: ROW["image"]})
    return folder


def grade(images: Path, patch: bytes) -> Verdict:
    backend = open_backend(SandboxSpec(local=LocalSpec(images=str(images))))
    request = SandboxRequest(name="sb-attack", image=ROW["image"], deadline_s=300, network=False)
    box = backend.create(request)
    try:
        spec = official.make_test_spec(ROW)
        return judge(run_tests(box, spec, patch, timeout_s=200, folder="logs"), spec, patch)
    finally:
        backend.destroy(box)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_named_whatever_the_official_verdict_says(name: str, images: Path) -> None:
    check(ATTACKS[name], grade(images, ATTACKS[name].patch.encode()))


def check(attack: Attack, verdict: Verdict) -> None:
    assert verdict.resolved is attack.resolved, verdict
    assert attack.code in codes_of(verdict.integrity)
    assert verdict.integrity.verdict == "suspect"


def test_a_compiled_module_is_named(images: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "rules.py", tmp_path / "slugkit/rules.pyc"
    source.write_text(EMPTY_RUNTEST)
    py_compile.compile(str(source), str(target), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    for command in (["init", "-q"], ["add", "slugkit"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    patch = subprocess.run(
        ["git", "diff", "--cached", "--binary"], cwd=tmp_path, check=True, capture_output=True
    ).stdout
    patch += import_in_product("import slugkit.rules").encode()
    check(Attack("", "patch_adds_binary"), grade(images, patch))
