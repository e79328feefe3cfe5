"""What is found of a backend by its name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from swe_argo.steps.contracts.backends import BACKENDS
from swe_argo.steps.errors import extra_hint
from swe_argo.steps.sandbox import load_part

WITHOUT = """
import sys
sys.modules[sys.argv[2]] = None
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.sandbox import load_backend
from swe_argo.steps.sandbox.diagnosis import diagnose
from swe_argo.steps.sandbox.orphans import list_orphans
print(diagnose(sys.argv[1], SandboxSpec()).detail)
print(list_orphans(sys.argv[1], SandboxSpec()).names)
load_backend(sys.argv[1])
"""


@pytest.mark.parametrize(
    ("name", "library"),
    [("docker", "docker"), ("kubernetes", "kubernetes"), ("e2b", "e2b"), ("ags", "tencentcloud"), ("ags", "e2b")],
)
def test_missing_library_names_its_extra(name: str, library: str) -> None:
    result = subprocess.run([sys.executable, "-c", WITHOUT, name, library], capture_output=True, text=True, check=False)
    reason = f"'{name}' needs the package {library}: {extra_hint(name)}"
    assert result.stdout.splitlines() == [reason, "[]"], result.stderr
    assert result.stderr.splitlines()[-1] == f"swe_argo.steps.errors.ConfigError: sandbox.backend: {reason}"


@pytest.mark.parametrize("name", BACKENDS)
def test_every_backend_has_all_parts(name: str) -> None:
    for library in {"e2b": ["e2b"], "ags": ["e2b", "tencentcloud"]}.get(name, []):
        pytest.importorskip(library, reason=f"the extra {name} is not installed")
    parts = (("backend", "connect"), ("readiness", "ready"), ("diagnosis", "diagnose"), ("orphans", "list_orphans"))
    assert all(callable(load_part(name, *part)) for part in parts)


def test_missing_part_is_none() -> None:
    assert load_part("local", "hooks", "run_hooks") is None
    assert callable(load_part("docker", "hooks", "run_hooks"))
