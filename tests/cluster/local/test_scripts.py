"""What `cluster` says where there can be no cluster; nothing here starts one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT

HERE = ROOT / "cluster" / "local"
SCRIPTS = [HERE / "cluster", HERE / "src/netpol/netpol-cni", *sorted(HERE.glob("*.sh"))]
WRONG = 64


class Machine:
    """This machine as ``cluster`` sees it: programs of its own choice before all others, and an empty state folder."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "programs"
        self.programs.mkdir()
        self.state = folder / "s"  # sockets are made in it, and their paths are short
        self.path = os.environ["PATH"]
        self.more: dict[str, str] = {}
        self.has("id", "echo 0")  # whoever runs the tests

    def has(self, program: str, script: str) -> None:
        """A program of this name that does ``script``."""
        (self.programs / program).write_text(f"#!/bin/sh\n{script}\n")
        (self.programs / program).chmod(0o755)

    def lacks(self, *names: str) -> None:
        """No program of these names is on the PATH."""
        for folder in dict.fromkeys(self.path.split(":")):
            for program in Path(folder).iterdir() if Path(folder).is_dir() else ():
                link = self.programs / program.name
                if program.name not in names and not link.exists() and not link.is_symlink():
                    link.symlink_to(program)
        self.path = ""

    def cluster(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.programs}:{self.path}"
        environment = {"PATH": path, "HOME": "/nowhere", "SWE_ARGO_CLUSTER": str(self.state), **self.more}
        return subprocess.run(
            [str(HERE / "cluster"), *arguments], env=environment, capture_output=True, text=True, check=False
        )


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    simulated = Machine(tmp_path)
    yield simulated
    assert not simulated.state.exists()  # nothing was begun


def refused(machine: Machine, *arguments: str) -> str:
    """The one line that a command is refused with."""
    result = machine.cluster(*arguments)
    assert result.returncode == WRONG, result.stderr
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_script_is_well_formed(script: Path) -> None:
    shell = "sh" if script.read_text().startswith("#!/bin/sh") else "bash"
    result = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, check=False)
    assert result.stderr == ""
    assert len(script.read_text().splitlines()) <= 300


def test_shellcheck_finds_nothing() -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed")
    result = subprocess.run(["shellcheck", "-x", *map(str, SCRIPTS)], capture_output=True, text=True, check=False)
    assert result.stdout == ""


def test_missing_verb_prints_usage(machine: Machine) -> None:
    for arguments in ((), ("dance",)):
        result = machine.cluster(*arguments)
        assert result.returncode == WRONG
        for verb in ("up", "down", "status", "env", "load", "install", "argo", "build", "restart", "why-not"):
            assert f"cluster {verb}" in result.stderr


def test_other_system_is_refused(machine: Machine) -> None:
    machine.has("uname", "echo Darwin")
    assert "requires Linux, not Darwin" in refused(machine, "up")


def test_long_state_path_is_refused(machine: Machine) -> None:
    machine.state = machine.state / ("x" * 90)
    assert "SWE_ARGO_CLUSTER" in refused(machine, "up")


def test_missing_go_is_named(machine: Machine) -> None:
    machine.lacks("go")
    assert "cannot be built without Go: install Go 1." in refused(machine, "up")


def test_old_go_is_named(machine: Machine) -> None:
    machine.has("go", "echo go1.22.3")
    message = refused(machine, "up")
    assert "cannot be built with Go 1.22.3" in message
    assert "Go 1.26 or newer" in message


def test_missing_goproxy_is_named(machine: Machine) -> None:
    machine.has("go", '[ "$1" = env ] && echo go1.30.0')
    assert "GOPROXY" in refused(machine, "up")


def test_missing_apt_names_the_packages(machine: Machine) -> None:
    machine.lacks("apt-get", "runc", "nft")
    message = refused(machine, "up")
    assert "runc" in message
    assert "nftables" in message
    assert "apt-get is not available" in message


def test_why_not_prints_the_reason(machine: Machine) -> None:
    machine.has("id", "echo 1000")
    for arguments in (["why-not"], ["up", "--check"]):
        result = machine.cluster(*arguments)
        assert result.returncode == 1
        assert result.stderr == ""
        assert result.stdout.startswith("the local cluster requires root")
        assert result.stdout.count("\n") == 1


def test_commands_need_a_running_cluster(machine: Machine) -> None:
    for verb in (["env"], ["install"], ["restart", "kubelet"]):
        assert "cluster up" in refused(machine, *verb) or "is not up" in refused(machine, *verb)
    assert machine.cluster("status").returncode != 0
    assert machine.cluster("down").returncode == 0


def test_unknown_part_is_not_restarted(machine: Machine) -> None:
    assert "etcd" in refused(machine, "restart", "etc")


def test_incomplete_argo_home_is_named(machine: Machine, tmp_path: Path) -> None:
    machine.more = {"ARGO_HOME": str(tmp_path)}
    for name in ("workflow-controller", "argoexec", "manifests/base/crds/full/argoproj.io_workflows.yaml"):
        assert f"ARGO_HOME={tmp_path} lacks {name}: make argo-binaries" in refused(machine, "argo")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert "cluster up" in refused(machine, "argo")


def test_argo_home_is_in_the_cache(machine: Machine) -> None:
    assert "ARGO_HOME=/nowhere/.cache/swe-argo/argo lacks workflow-controller" in refused(machine, "argo")


def test_build_argo_needs_a_checkout(machine: Machine, tmp_path: Path) -> None:
    assert "SOURCE is not set" in refused(machine, "build-argo")
    assert f"SOURCE={tmp_path} is not a checkout of argo-workflows" in refused(machine, "build-argo", str(tmp_path))
    (tmp_path / "go.mod").write_text("module github.com/argoproj/argo-workflows/v4\n")
    machine.lacks("go")
    assert "without Go" in refused(machine, "build-argo", str(tmp_path))
