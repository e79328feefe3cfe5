"""What a real kubelet, scheduler and API server do to sandboxes, each under its own name."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kubernetes.utils.quantity import parse_quantity

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError, InfraError, ResourceError, StepError
from swe_argo.steps.sandbox.kubernetes.pod import KubernetesSandbox
from swe_argo.steps.sandbox.untrusted import SandboxBroken, as_untrusted
from tests.cluster.lab import KubernetesLab, keep_pod_object
from tests.steps.sandbox.conformance import run, says
from tests.workflows.command import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

KUBELET_S = 240
"""A kubelet measures what a pod has on disk once a minute; on a busy machine the eviction follows later."""


def lost(box: KubernetesSandbox, kind: type[StepError], failure_class: FailureClass) -> StepError:
    """How a command fails whose sandbox is taken from under it; so does the next one."""
    for command in ("sleep 45", "true"):
        with pytest.raises(StepError) as caught:
            run(box, command, timeout_s=60)
        assert (type(caught.value), caught.value.failure_class) == (kind, failure_class), caught.value.detail
    return caught.value


def refused(lab: KubernetesLab, kind: type[StepError], failure_class: FailureClass, **options: Any) -> StepError:
    """How making a sandbox fails. No pod is left."""
    settings = options.pop("settings", {})
    before = lab.pods()
    with pytest.raises(StepError) as caught:
        lab.make(lab.backend(**settings), **options)
    assert (type(caught.value), caught.value.failure_class) == (kind, failure_class), caught.value.detail
    assert lab.pods() == before
    assert "\n" not in caught.value.reason
    return caught.value


def later(act: Any, *args: Any, **options: Any) -> None:
    threading.Timer(1.0, act, args, options).start()


class TestLosing:
    def test_command_over_memory_is_reported(self, lab: KubernetesLab) -> None:
        box = lab.make(memory_mb=64)
        with pytest.raises(ResourceError, match="64Mi") as caught:
            run(box, "python3 -c 'b = bytearray(300 << 20)' || echo it was killed")
        assert caught.value.failure_class is FailureClass.OUT_OF_MEMORY

    def test_disk_limit_is_resource_error(self, lab: KubernetesLab) -> None:
        box = lab.make(disk_mb=64)
        with pytest.raises(ResourceError, match=r"ephemeral local storage|ephemeral storage limit") as caught:
            run(box, f"head -c 200M /dev/zero >/testbed/big; sleep {KUBELET_S}", timeout_s=KUBELET_S + 20)
        assert caught.value.failure_class is FailureClass.OUT_OF_DISK
        assert "Evicted" in caught.value.detail

    def test_output_limit_is_resource_error(self, lab: KubernetesLab) -> None:
        box = lab.make(lab.backend(jobsSizeLimit="20Mi"))
        with pytest.raises(ResourceError, match='"jobs" exceeds the limit') as caught:
            run(box, f"head -c 60M /dev/zero; sleep {KUBELET_S}", timeout_s=KUBELET_S + 20)
        assert caught.value.failure_class is FailureClass.OUT_OF_DISK

    def test_eviction_has_its_class(self, lab: KubernetesLab) -> None:
        box = lab.make()
        with keep_pod_object(lab, box):
            later(lab.cluster.evict, lab.namespace, box.transport.name)
            lost(box, InfraError, FailureClass.EVICTED)

    def test_preemption_has_its_class(self, lab: KubernetesLab) -> None:
        name = f"{lab.namespace}-more"
        important = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        lab.kubectl("apply", "-f", "-", input=json.dumps({**important, "value": 1000}))
        most = {"cpu": "10m", "memory": "16Mi", "ephemeral-storage": _most_of_the_disk(lab)}
        asks = {"requests": most, "limits": {**most, "cpu": "1", "memory": "256Mi"}}
        with ThreadPoolExecutor(1) as pool:
            try:
                box = lab.make(lab.backend(resources=asks))
                bigger = lab.backend(resources=asks, priorityClassName=name)
                making = pool.submit(bigger.create, lab.request())
                error = lost(box, InfraError, FailureClass.PREEMPTED)
                assert "reempt" in error.reason
                bigger.destroy(making.result())
            finally:
                lab.kubectl("delete", "priorityclass", name)

    def test_deleted_pod_is_lost_at_once(self, lab: KubernetesLab) -> None:
        box = lab.make()
        later(lab.kubectl, "delete", "pod", box.transport.name, "--wait=false")
        lost(box, InfraError, FailureClass.SANDBOX_LOST)  # before the command's own end

    def test_killed_container_has_exit_code(self, lab: KubernetesLab) -> None:
        box = lab.make()
        later(lab.cluster.crash, lab.namespace, box.transport.name)
        error = lost(box, InfraError, FailureClass.SANDBOX_LOST)
        assert "exit code 137" in error.reason


class TestMaking:
    def test_missing_image_is_config_error(self, lab: KubernetesLab) -> None:
        error = refused(lab, ConfigError, FailureClass.IMAGE_MISSING, image="localhost/no such")
        assert "localhost/no such" in error.reason

    def test_absent_registry_is_infra_error(self, lab: KubernetesLab) -> None:
        began = time.monotonic()
        settings = {"pendingSeconds": 30}
        error = refused(lab, InfraError, FailureClass.IMAGE_PULL, image="localhost/none:1", settings=settings)
        assert time.monotonic() - began >= settings["pendingSeconds"]
        assert "failed to" in error.reason
        assert "Pulling image" in error.detail  # events, too

    def test_no_shell_is_config_error(self, lab: KubernetesLab) -> None:
        error = refused(lab, ConfigError, FailureClass.IMAGE_MISSING, image="localhost/pause:1")
        assert "/bin/sh" in error.reason

    def test_unmatched_selector_is_reported(self, lab: KubernetesLab) -> None:
        settings = {"pendingSeconds": 20, "nodeSelector": {"no": "such"}}
        error = refused(lab, InfraError, FailureClass.UNSCHEDULABLE, settings=settings)
        assert "didn't match Pod's node affinity/selector" in error.reason

    def test_missing_account_is_config_error(self, lab: KubernetesLab) -> None:
        error = refused(lab, ConfigError, FailureClass.ADMISSION, settings={"serviceAccountName": "nobody"})
        assert 'serviceaccount "nobody" not found' in error.reason

    def test_used_up_quota_is_waited_for(self, lab: KubernetesLab) -> None:
        wait_for(lambda: len(lab.pods()) == _count_pods(lab))  # what is on its way out counts until it is gone
        pod_count = _count_pods(lab)
        lab.kubectl("create", "quota", "few", f"--hard=count/pods={pod_count + 1}")
        try:
            wait_for(lambda: _read_count(lab, "few") == str(pod_count))
            box = lab.make()
            error = refused(lab, InfraError, FailureClass.ADMISSION, settings={"pendingSeconds": 3})
            assert "exceeded quota: few" in error.reason
            later(lab.destroy, box)
            assert says(lab.make(), "echo at last") == "at last\n"
        finally:
            lab.kubectl("delete", "quota", "few")

    def test_early_deadline_fails_the_start(self, lab: KubernetesLab) -> None:
        error = refused(lab, InfraError, FailureClass.SANDBOX_CREATE, image="localhost/none:1", deadline_s=2)
        assert "deadline of 2 s" in error.reason

    def test_interrupt_leaves_no_pod(self, lab: KubernetesLab) -> None:
        before = lab.pods()
        backend = lab.backend(nodeSelector={"no": "such"})
        timer = threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                lab.make(backend)
        finally:
            timer.join()
        assert lab.pods() == before


def _count_pods(lab: KubernetesLab) -> int:
    """How many pods there are, those on their way out too."""
    return len(lab.kubectl("get", "pods", "-o", "name").split())


def _read_count(lab: KubernetesLab, quota: str) -> str | None:
    """How many pods a quota has found; None while it is not in force."""
    status = json.loads(lab.kubectl("get", "quota", quota, "-o", "json")).get("status", {})
    pod_count: str | None = status.get("used", {}).get("count/pods")
    return pod_count


def _most_of_the_disk(lab: KubernetesLab) -> str:
    """More than half of what the node has: two such pods do not fit. Nobody else asks for much of it."""
    node = json.loads(lab.cluster.kubectl("get", "nodes", "-o", "json"))["items"][0]
    return str(int(parse_quantity(node["status"]["allocatable"]["ephemeral-storage"]) * 6 // 10))


def broken(lab: KubernetesLab, box: KubernetesSandbox, *commands: str, enlarged: bool = False) -> StepError:
    """How a pod fails in which these commands ran as code that is not ours, at the latest in the next one."""
    machine = as_untrusted(box, enlarged=enlarged)
    try:
        for command in (*commands, "sleep 20"):
            run(machine, command, timeout_s=40)
    except StepError as error:
        assert lab.pod(box.transport.name)["status"].get("reason") != "DeadlineExceeded"
        return error
    pytest.fail("it did not fail")


LIMITED = "python3 -c 'import resource as r; [r.prlimit(1, each, (0, 0)) for each in ({limits})]'"
"""Takes something from the first process. Without memory it goes round at once, without time for that it is killed."""
NO_START = LIMITED.format(limits="r.RLIMIT_AS, r.RLIMIT_NOFILE")
NO_TIME = LIMITED.format(limits="r.RLIMIT_AS, r.RLIMIT_CPU")


class TestBelieved:
    """Once code that is not ours ran in a pod: the kubelet and the API server are, the pod is not."""

    @pytest.mark.parametrize(
        "command",
        [
            "rm -f /bin/sh /usr/bin/sh /usr/bin/dash",
            "chmod 000 $(readlink -f /bin/sh)",
            "echo junk >/new; chmod +x /new; mv /new $(readlink -f /bin/sh)",
            "cp /bin/true /new; mv /new $(readlink -f /bin/sh)",
            "rm -f $(command -v setsid)",
        ],
        ids=["no shell", "shell denied", "shell is no program", "another shell", "no setsid"],
    )
    def test_inside_damage_breaks_sandbox(self, lab: KubernetesLab, command: str) -> None:
        box = lab.make()
        assert isinstance(broken(lab, box, command), SandboxBroken)
        assert box.outside_failure() is None

    def test_ended_pid_1_breaks_sandbox(self, lab: KubernetesLab) -> None:
        box = lab.make()
        error = broken(lab, box, f"{NO_TIME}; kill -9 -1")
        assert isinstance(error, SandboxBroken)
        assert error.failure_class is FailureClass.SANDBOX_LOST
        assert box.outside_failure() is None
        assert lab.pod(box.transport.name)["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] == "Error"

    def test_starved_pid_1_keeps_its_pod(self, lab: KubernetesLab) -> None:
        box = lab.make()
        run(as_untrusted(box), f"{NO_START}; kill -9 -1", timeout_s=20)
        assert says(box, "echo unharmed") == "unharmed\n"

    def test_memory_kill_is_infra_once(self, lab: KubernetesLab) -> None:
        # Where the kernel kills but one process, the kubelet tells of it when the first one ends.
        hungry = f"{NO_TIME}; python3 -c 'b = bytearray(300 << 20)'; sleep 25"
        error = broken(lab, lab.make(memory_mb=64), hungry)
        assert (type(error), error.failure_class) == (ResourceError, FailureClass.OUT_OF_MEMORY)
        again = broken(lab, lab.make(memory_mb=64), hungry, enlarged=True)
        assert isinstance(again, SandboxBroken)
        assert again.failure_class is FailureClass.OUT_OF_MEMORY

    def test_eviction_is_an_infra_error(self, lab: KubernetesLab) -> None:
        box = lab.make()
        with keep_pod_object(lab, box):
            later(lab.cluster.evict, lab.namespace, box.transport.name)
            with pytest.raises(InfraError) as caught:
                run(as_untrusted(box), "sleep 45", timeout_s=60)
        assert not isinstance(caught.value, SandboxBroken)
        assert caught.value.failure_class is FailureClass.EVICTED

    def test_memory_limit_needs_the_kubelet(self, lab: KubernetesLab) -> None:
        box = lab.make(memory_mb=64)
        with pytest.raises((ResourceError, SandboxBroken)) as caught:
            run(as_untrusted(box), "python3 -c 'b = bytearray(300 << 20)' || echo it was killed")
        assert isinstance(caught.value, ResourceError) == (box.outside_failure() is not None)
