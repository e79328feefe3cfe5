"""A program that tests fork finds what it would find if it had been started, and ends as it would end then."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.forked_program import EARLY, run_program
from tests.paths import ROOT

PROGRAM = "tests.told_program"
READ = """
import os
from importlib import import_module
from tests.forked_program import IMPORTED

class Watched(dict):
    def __getitem__(self, name):
        seen.add(name.decode())
        return super().__getitem__(name)

    def __contains__(self, name):
        seen.add(name.decode())
        return super().__contains__(name)

    def __iter__(self):
        seen.add("all of them")
        return super().__iter__()

seen = set()
os.environ._data = Watched(os.environ._data)
for name in IMPORTED:
    import_module(name)
print(*sorted(seen - {"HOME"}))  # which sysconfig reads for where packages of a user are
"""


def started(*words: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What is to be compared with."""
    command = [sys.executable, "-m", PROGRAM, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=env, timeout=120)


def test_it_finds_what_a_started_one_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_THE_TEST", "1")
    env = {name: value for name, value in os.environ.items() if name != "SHELL"} | {"OF_ITS_OWN": "ü"}
    for cwd in (tmp_path, ROOT):
        forked = run_program(PROGRAM, ["tell", "a b"], cwd, env)
        real = started("tell", "a b", cwd=cwd, env=env)
        assert (forked.returncode, forked.stderr) == (real.returncode, real.stderr) == (0, "")
        assert json.loads(forked.stdout) == json.loads(real.stdout)
    assert json.loads(forked.stdout)["environment"]["OF_ITS_OWN"] == "ü"


def test_nothing_stays_of_one_for_the_next(tmp_path: Path) -> None:
    run_program(PROGRAM, ["change"], tmp_path)
    real = started("tell", cwd=tmp_path, env=dict(os.environ))
    assert json.loads(run_program(PROGRAM, ["tell"], tmp_path).stdout) == json.loads(real.stdout)


@pytest.mark.parametrize("end", ["return", "word", "code", "raise", "SIGINT", "SIGTERM", "SIGKILL", "thread"])
def test_it_ends_as_a_started_one_ends(end: str, tmp_path: Path) -> None:
    forked = run_program(PROGRAM, [end], tmp_path)
    real = started(end, cwd=tmp_path, env=dict(os.environ))
    assert (forked.returncode, forked.stdout) == (real.returncode, real.stdout)
    assert forked.stderr.splitlines()[-1:] == real.stderr.splitlines()[-1:]


def test_past_its_time_it_is_killed(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_program(PROGRAM, ["hang", str(tmp_path / "pid")], timeout_s=5)
    pid = int((tmp_path / "pid").read_text())
    while Path(f"/proc/{pid}").exists():  # its parent learns of it in a moment
        time.sleep(0.02)


def test_what_is_read_while_importing_is_known(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, check=True, timeout=120)
    assert [name for name in done.stdout.split() if not name.startswith(EARLY)] == []


def test_what_is_read_early_is_read(tmp_path: Path) -> None:
    env = os.environ | {"PYTHONUTF8": "1", "PYTHONWARNINGS": "error"}
    assert json.loads(run_program(PROGRAM, ["tell"], tmp_path, env).stdout)["flags"].count("utf8_mode=1") == 1
