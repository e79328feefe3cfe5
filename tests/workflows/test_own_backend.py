"""Backends of the user: the one of the docs, failing ones, and their hooks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import EXIT_CONFIG
from swe_argo.steps.sandbox import diagnose
from tests import solutions
from tests.paths import ROOT
from tests.workflows.command import call, ids, plan_refusal, summary, swe_argo
from tests.workflows.test_own_agent import FIXER

DOCS = Path(__file__).parents[2] / "docs" / "add-a-backend.md"
INSTANCE = "mini__slugkit-2"
REFUSING = """
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.local.backend import LocalBackend


class {name}(LocalBackend):
    @classmethod
    def {method}(cls, spec, needs=None):
        raise ConfigError("{reason}")
"""


def of_docs(folder: Path) -> Path:
    """Write the file of the docs."""
    [code] = re.findall(r"```python\n(.*?\n)```\n\n", DOCS.read_text("utf-8"), re.DOTALL)
    file = folder / "my_backend.py"
    file.write_text(code, "utf-8")
    return file


def test_docs_backend_makes_sandboxes(tmp_path: Path) -> None:
    of_docs(tmp_path)
    words = ["--store", "store", "--run-id", "run", "--agent", "idle", "--backend", "my_backend.py:LoggedBackend"]
    result = swe_argo("run", *words, *ids(INSTANCE), cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert summary(str(tmp_path / "store"), "run").headline.resolved == 0
    sandboxes = (tmp_path / "sandboxes.log").read_text("utf-8").splitlines()
    assert sandboxes == [f"solve {INSTANCE}", f"grade {INSTANCE}"]


OLD_BACKEND = """
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.sandbox.diagnosis import Diagnosis
from swe_argo.steps.sandbox.hooks import RunHooks
from swe_argo.steps.sandbox.local import backend, readiness
from swe_argo.steps.sandbox.orphans import Orphans
from swe_argo.steps.sandbox.protocol import Backend, Sandbox, SandboxRequest
from swe_argo.steps.sandbox.readiness import ReadinessResult, SandboxNeeds

mini_images = "folders"


def ready(spec: SandboxSpec, sandbox_needs: SandboxNeeds) -> ReadinessResult:
    return readiness.ready(spec, sandbox_needs)


def diagnose(spec: SandboxSpec) -> Diagnosis:
    return Diagnosis(True, "as ever")


def connect(spec: SandboxSpec) -> Backend:
    return Listed(backend.connect(spec))


class Listed:
    def __init__(self, inner: Backend) -> None:
        self.inner = inner

    def create(self, request: SandboxRequest) -> Sandbox:
        return self.inner.create(request)

    def destroy(self, sandbox: Sandbox) -> None:
        self.inner.destroy(sandbox)
"""
"""A backend as the docs of version 0.1 describe it: functions of a module."""


def test_backend_of_functions_still_works(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text(OLD_BACKEND, "utf-8")
    words = ["--store", "store", "--run-id", "run", "--agent", "idle", "--backend", "old.py:connect"]
    result = swe_argo("run", *words, *ids(INSTANCE), cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    advice = "old.py:connect is a function: make it a class that extends Backend (docs/add-a-backend.md)"
    assert (result.stdout + result.stderr).count(advice) == 1
    assert summary(str(tmp_path / "store"), "run").headline.resolved == 0
    assert diagnose(f"{tmp_path}/old.py:connect", SandboxSpec()).detail == "as ever"


def console_script(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command as pip installs it: a script elsewhere, started without the current folder on the path."""
    script = folder / "bin" / "swe-argo"
    script.parent.mkdir()
    script.write_text("from swe_argo.workflows.cli.main import main\nmain()\n", "utf-8")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, script, *words], capture_output=True, text=True, check=False, cwd=folder, env=env
    )


@pytest.mark.long
def test_console_script_finds_local_modules(tmp_path: Path) -> None:
    of_docs(tmp_path)
    patch = solutions.rows()[INSTANCE]["patch"]
    (tmp_path / "my_agent.py").write_text(f"PATCH = {patch!r}\n{FIXER}", "utf-8")
    words = [
        "--store",
        "store",
        "--run-id",
        "run",
        "--agent",
        "my_agent:Fixer",
        "--backend",
        "my_backend:LoggedBackend",
    ]
    result = console_script(tmp_path, "run", *words, "--allow-host", *ids(INSTANCE))
    assert result.returncode == 0, result.stdout + result.stderr
    assert summary(str(tmp_path / "store"), "run").headline.resolved == 1


def test_clean_needs_working_backend(tmp_path: Path) -> None:
    code = REFUSING.format(name="AwayBackend", method="list_orphans", reason="it is away")
    (tmp_path / "away.py").write_text(code, "utf-8")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    env = {"TMPDIR": str(temporary)}
    make = "from swe_argo.steps.host.folders import private_folder; print(private_folder())"
    process = subprocess.run(
        [sys.executable, "-c", make], capture_output=True, text=True, check=True, env=os.environ | env
    )
    orphan = Path(process.stdout.strip())  # its owner has ended
    assert orphan.name in swe_argo("clean", cwd=tmp_path, env=env).stdout
    result = swe_argo("clean", "--yes", "--backend", "away.py:AwayBackend", cwd=tmp_path, env=env)
    assert result.returncode == EXIT_CONFIG
    assert "it is away" in result.stderr
    assert orphan.exists()


PARTS = """
import os
from contextlib import contextmanager
from pathlib import Path

from my_backend import LoggedBackend
from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import InfraError
from swe_argo.steps.sandbox.protocol import Diagnosis, Orphans, RunHooks

FILE = Path(__file__).with_name("left-over")


def log(line):
    with FILE.with_name("hooks.log").open("a") as file:
        file.write(line + chr(10))


class Hooks(RunHooks):
    env = {"SWE_ARGO_OWNER": "an owner"}
    answers = iter((False, True))

    def can_create(self):
        log("is it there?")
        return next(self.answers)

    def remove_remains(self, unit):
        log(f"remains of {unit.instance_id}")

    def finish_unit(self, unit):
        log(f"finished {unit.instance_id}")


class FullBackend(LoggedBackend):
    @classmethod
    def connect(cls, spec):
        tried = FILE.with_name("tried")
        if not tried.exists():
            tried.touch()
            log(f"a step with {os.environ['SWE_ARGO_OWNER']}")
            raise InfraError(FailureClass.SANDBOX_CREATE, "it is away")
        return super().connect(spec)

    @classmethod
    @contextmanager
    def run_hooks(cls, spec, plan):
        log(f"begin {plan.run_id}")
        yield Hooks()
        log("end")

    @classmethod
    def diagnose(cls, spec):
        return Diagnosis(True, f"{spec.registry or 'no registry'}, as ever", "it could be better")

    @classmethod
    def list_orphans(cls, spec):
        return Orphans([FILE.name] if FILE.exists() else [], lambda: FILE.unlink() or {}, where="of mine")
"""


@pytest.mark.long
def test_backend_hooks_are_called(tmp_path: Path) -> None:
    of_docs(tmp_path)
    (tmp_path / "parts.py").write_text(PARTS, "utf-8")
    own = ("--backend", "parts.py:FullBackend")
    env = {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}", "COLUMNS": "200"}
    result = swe_argo("run", "--store", "store", "--run-id", "run", *own, *ids(INSTANCE), cwd=tmp_path, env=env)
    assert result.returncode == 0, result.stdout + result.stderr
    assert (tmp_path / "hooks.log").read_text("utf-8").splitlines() == [
        "begin run",
        "a step with an owner",
        "is it there?",
        "is it there?",
        f"remains of {INSTANCE}",
        f"finished {INSTANCE}",
        "end",
    ]
    doctor = swe_argo("doctor", *own, cwd=tmp_path, env=env).stdout
    assert re.search(
        r"^backend parts.py:FullBackend +yes +no registry, as ever *\n +it could be better", doctor, re.MULTILINE
    )
    (tmp_path / "left-over").touch()
    listed = swe_argo("clean", *own, cwd=tmp_path, env=env).stdout.splitlines()
    assert "parts.py:FullBackend of mine: left-over" in listed
    assert (tmp_path / "left-over").exists()
    assert swe_argo("clean", "--yes", *own, cwd=tmp_path, env=env).returncode == 0
    assert not (tmp_path / "left-over").exists()
    assert "parts.py" not in swe_argo("doctor", cwd=tmp_path, env=env).stdout


def test_failing_diagnosis_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("away.py").write_text(REFUSING.format(name="AwayBackend", method="diagnose", reason="nobody there"), "utf-8")
    doctor = call("doctor", "--backend", "away.py:AwayBackend", env={"COLUMNS": "200"}).stdout
    assert re.search(r"^backend away.py:AwayBackend +no +.*nobody there *$", doctor, re.MULTILINE)
    assert re.search("^hub", doctor, re.MULTILINE)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (None, "there is no file own.py"),
        ("OwnBackend = 3\n", "is not a backend: expected a class that extends Backend"),
        ("class OwnBackend: ...\n", "is not a backend: expected a class that extends Backend"),
        ("", "has no OwnBackend"),
        ("import missing_library\n", "cannot be imported: ModuleNotFoundError"),
        (REFUSING.format(name="OwnBackend", method="ready", reason="no room for it"), "no room for it"),
    ],
)
def test_run_refuses_invalid_backend(
    tmp_path: Path, code: str | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if code is not None:
        Path("own.py").write_text(code, "utf-8")
    refusal = plan_refusal("--store", "store", "--backend", "own.py:OwnBackend", *ids(INSTANCE))
    assert refusal.exit_code == EXIT_CONFIG
    assert reason in str(refusal)
    assert not Path("store", "runs").exists()


def test_run_refuses_missing_module(tmp_path: Path) -> None:
    words = ["--store", str(tmp_path / "store"), "--backend", "nowhere_at_all:Backend"]
    assert "there is no module nowhere_at_all here" in str(plan_refusal(*words, *ids(INSTANCE)))
    assert not list(tmp_path.rglob("runs"))
