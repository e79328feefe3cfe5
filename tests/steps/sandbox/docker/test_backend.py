"""Backend docker on a real engine."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from docker import DockerClient

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.sandbox import diagnose, open_backend
from swe_argo.steps.sandbox.docker.backend import DockerBackend
from swe_argo.steps.sandbox.docker.container import DockerSandbox, clean, find_orphans
from swe_argo.steps.sandbox.docker.engine import EngineRetries, connect_engine
from swe_argo.steps.sandbox.job_sandbox import JobSandbox
from swe_argo.steps.sandbox.protocol import Diagnosis, Sandbox
from tests.base_image import testbed_image as make_testbed_image
from tests.paths import ROOT
from tests.steps.sandbox.conformance import Conformance, run, says
from tests.steps.sandbox.lab import LABELS, BackendLab
from tests.steps.sandbox.mounted_bundles import assert_mounted, make_bundle

needs_engine = pytest.mark.docker


class DockerLab(BackendLab[DockerSandbox]):
    def __init__(self, client: DockerClient, image: str) -> None:
        super().__init__(DockerBackend(client.api, patience=EngineRetries(first_s=0.05, longest_s=0.5)))
        self.client = client
        self.image = image
        bridge = client.networks.get("bridge").attrs["IPAM"]["Config"][0]
        self.host = bridge.get("Gateway") or bridge["Subnet"].replace("0.0/16", "0.1")

    def kill(self, sandbox: Sandbox) -> None:
        assert isinstance(sandbox, JobSandbox)
        self.client.api.kill(sandbox.transport.container)

    def inspect(self, sandbox: DockerSandbox) -> dict[str, Any]:
        return dict(self.client.api.inspect_container(sandbox.transport.container))


@pytest.fixture(scope="module")
def lab(docker_client: DockerClient, checkout: Path) -> Iterator[DockerLab]:
    with DockerLab(docker_client, make_testbed_image(docker_client, checkout)) as lab:
        yield lab


@needs_engine
class TestDocker(Conformance):
    pass


@needs_engine
class TestContainers:
    def test_kill_all_keeps_the_machine(self, lab: DockerLab) -> None:
        box = lab.make()
        assert run(box, "kill -9 -1; echo never").exit_code == 137
        assert says(box, "echo still here") == "still here\n"

    def test_zombies_are_reaped(self, lab: DockerLab) -> None:
        box = lab.make()
        says(box, "for i in $(seq 20); do (setsid sleep 0.05 &); done; sleep 0.5")
        time.sleep(0.5)
        while says(box, "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z ' || :") != "0\n":
            time.sleep(0.1)  # an ended process is a zombie for a moment

    def test_open_shell_ends_with_its_line(self, lab: DockerLab) -> None:
        box = lab.make()

        def shells() -> int:
            lines = lab.client.api.top(box.transport.container, "-eo pid,args")["Processes"]
            return sum(args == "/bin/sh" for _, args in lines)

        says(box, "true")
        assert shells() == 1
        box.transport.close()
        while shells():  # until the time limit of the test
            time.sleep(0.1)
        assert says(box, "echo again") == "again\n"

    def test_resource_factor_scales_limits(self, lab: DockerLab) -> None:
        box = lab.make(memory_mb=128, cpus=0.5, resource_factor=2.0)
        host = lab.inspect(box)["HostConfig"]
        assert (host["Memory"], host["NanoCpus"]) == (256 << 20, 10**9)
        assert (box.machine.memory_mb, box.machine.cpus, box.machine.resource_factor) == (256, 1.0, 2.0)
        cores = lab.client.info()["NCPU"]
        assert lab.make(cpus=cores * 100.0).machine.cpus == cores

    def test_default_is_unlimited_and_closed(self, lab: DockerLab) -> None:
        box = lab.make()
        host = lab.inspect(box)["HostConfig"]
        assert (host["Memory"], host["NanoCpus"], host["NetworkMode"]) == (0, 0, "none")
        assert not host["Privileged"]
        assert not host["CapAdd"]
        assert says(box, "ls /sys/class/net") == "lo\n"
        assert (box.machine.backend, box.machine.isolation, box.machine.network) == ("docker", "container", False)
        assert (box.machine.image_digest or "").startswith("sha256:")

    def test_container_has_its_labels(self, lab: DockerLab) -> None:
        before = int(time.time())
        labels = lab.inspect(lab.make(deadline_s=100))["Config"]["Labels"]
        assert {key: labels[f"swe-argo/{key}"] for key in LABELS} == LABELS
        assert labels["swe-argo"] == "sandbox"
        assert before + 100 <= int(labels["swe-argo/deadline"]) <= time.time() + 101

    def test_own_name_is_taken_over(self, lab: DockerLab) -> None:
        name = lab.request().name
        first, second = lab.make(name=name), lab.make(name=name)
        assert first.transport.container != second.transport.container
        assert says(second, "echo new") == "new\n"
        with pytest.raises(InfraError, match="was removed"):
            run(first, "true")

    def test_foreign_name_is_refused(self, lab: DockerLab) -> None:
        name = lab.request().name
        other = lab.make(name=name, labels={**LABELS, "run": "another"})
        with pytest.raises(InfraError, match=f"{name} is in use") as caught:
            lab.make(name=name)
        assert caught.value.failure_class is FailureClass.SANDBOX_CREATE
        assert says(other, "echo unharmed") == "unharmed\n"

    def test_refused_limit_is_a_config_error(self, lab: DockerLab) -> None:
        with pytest.raises(ConfigError, match="memory limit"):
            lab.make(memory_mb=1)

    def test_image_without_shell_is_refused(self, lab: DockerLab) -> None:
        lab.client.api.import_image_from_data(bytes(10240), repository="swe-argo-test-empty", tag="1")
        request = lab.request(image="swe-argo-test-empty:1")
        with pytest.raises(ConfigError, match="/bin/sh"):
            lab.backend.create(request)
        assert lab.client.api.containers(all=True, filters={"name": request.name}) == []


@needs_engine
class TestOrphans:
    def test_late_container_is_orphaned(self, lab: DockerLab) -> None:
        box, fresh = lab.make(deadline_s=1), lab.make()
        time.sleep(2.2)
        orphans = find_orphans(lab.client.api)
        assert box.transport.name in orphans
        assert fresh.transport.name not in orphans
        assert clean([box.transport.name], lab.client.api) == {}
        assert box.transport.name not in find_orphans(lab.client.api)

    def test_unowned_container_is_orphaned(self, lab: DockerLab, docker_host: None) -> None:
        name = lab.request().name
        script = (
            "from swe_argo.steps.contracts.sandbox_spec import SandboxSpec\n"
            "from swe_argo.steps.sandbox import open_backend\n"
            "from swe_argo.steps.sandbox.protocol import SandboxRequest\n"
            "backend = open_backend(SandboxSpec(backend='docker'))\n"
            f"backend.create(SandboxRequest({name!r}, {lab.image!r}, 600, False))"
        )
        subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)
        assert name in find_orphans(lab.client.api)
        assert clean([name], lab.client.api) == {}
        assert name not in find_orphans(lab.client.api)

    def test_foreign_container_is_kept(self, lab: DockerLab) -> None:
        name = lab.request().name
        other = lab.client.containers.create(lab.image, ["true"], name=name, labels={"a": "b"})
        try:
            assert name not in find_orphans(lab.client.api)
            assert clean([name], lab.client.api) == {name: "still exists"}
            other.reload()
        finally:
            other.remove(force=True)

    def test_diagnose_reports_the_engine(self, docker_host: None, lab: DockerLab) -> None:
        diagnosis = diagnose("docker", SandboxSpec())
        info = lab.client.info()
        assert diagnosis.well
        assert diagnosis.detail.startswith(f"{info['ServerVersion']}, {info['Architecture']}, {info['Driver']} at /")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("unix:///no/such/docker.sock", "unix:///no/such/docker.sock (no such file or directory)"),
        ("tcp://127.0.0.1:9", "tcp://127.0.0.1:9"),
        ("carrier-pigeon://x", "carrier-pigeon"),
    ],
)
def test_missing_engine_is_one_line(host: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    connect_engine.cache_clear()
    with pytest.raises(ConfigError) as caught:
        connect_engine()
    assert expected in str(caught.value)
    assert "--backend local" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert diagnose("docker", SandboxSpec()) == Diagnosis(False, caught.value.reason.removeprefix("sandbox.backend: "))
    with pytest.raises(InfraError, match="no Docker engine answers"):  # plan found one: it went away under the run
        open_backend(SandboxSpec(backend="docker"))


@needs_engine
class TestAgentsFiles:
    def test_bundle_is_one_mounted_volume(self, lab: DockerLab, tmp_path: Path) -> None:
        bundle = make_bundle(tmp_path / "bundle")
        holder = f"swe-argo-agent-{bundle.digest.removeprefix('sha256:')[:32]}"
        try:
            with ThreadPoolExecutor(2) as pool:
                boxes = list(pool.map(lambda _: lab.make(bundle=bundle), range(2)))
            for box in boxes:
                assert_mounted(box)
            volumes = {lab.inspect(box)["Mounts"][0]["Name"] for box in boxes}
            for box in boxes:
                lab.destroy(box)
            assert_mounted(lab.make(bundle=bundle))
            holder_info = lab.client.api.inspect_container(holder)
            assert volumes == {holder_info["Mounts"][0]["Name"]}
            containers = lab.client.api.containers(all=True, filters={"label": "swe-argo=agent"})
            assert [name for container in containers for name in container["Names"] if holder in name] == [f"/{holder}"]
        finally:
            for box in lab.sandboxes:
                lab.destroy(box)
            lab.client.api.remove_container(holder, v=True, force=True)
