"""``swe-argo agents``: locks, builds, lists and refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests import npm_registry
from tests.workflows.command import call

RECIPE = 'name = "mine"\nversion = "1.2.0"\ncommand = ["{bundle}/go"]\n[source.npm]\npackage = "mine"\n'


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_agents_are_locked_and_built(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(RECIPE)
    with npm_registry.serve() as registry:
        registry.add("mine", "1.2.0", {"go": "#!/bin/sh\n"})
        env = {"npm_config_registry": registry.address, "npm_config_cache": str(tmp_path / "npm")}
        env["SWE_ARGO_HOME"] = str(tmp_path / "home")
        locked = call("agents", "lock", str(file), env=env)
        assert (locked.returncode, locked.stdout.strip()) == (0, str(tmp_path / "mine.lock")), locked.stderr
        built = call("agents", "build", str(file), env=env)
        assert built.returncode == 0, built.stderr
        title, digest, folder = built.stdout.splitlines()[-3:]
        assert title.startswith("mine 1.2.0 for ")
        assert title.endswith(": 1 packages")
        assert (Path(folder) / "node_modules" / "mine" / "go").is_file()
        missing = call("agents", "build", f"{file}@2", env=env)
        assert (missing.returncode, missing.stderr) == (64, "swe-argo: agent.version: the registry has no mine 2\n")
    listed = call("agents", "list", env=env)
    assert digest in listed.stdout
    assert "mine 1.2.0" in listed.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["build", "nobody"], "agent: there is no agent program 'nobody'"),
        (["build", "none.toml"], "agent.file: there is no file none.toml"),
        (["build", "{file}", "--architecture", "vax"], "--architecture: 'vax' is neither amd64 nor arm64"),
        (["build", "{file}@^1"], "'^1' is not an exact version"),
        (["lock", "{file}@1"], "write the version to the recipe"),
    ],
)
def test_agents_command_refuses_bad_word(tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "mine.toml").write_text(RECIPE)
    result = call("agents", *(word.replace("{file}", str(tmp_path / "mine.toml")) for word in words))
    assert (result.returncode, result.stderr.count("\n")) == (64, 1), result.stderr
    assert message in result.stderr
