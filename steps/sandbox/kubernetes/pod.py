"""One pod: short execs by the API server; what fails is asked of the pod itself."""

from __future__ import annotations

from typing import Any

from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import InfraError, ResourceError, StepError
from swe_argo.steps.kube.client import FailureStreak, RetryPolicy
from swe_argo.steps.sandbox.job_sandbox import JobSandbox
from swe_argo.steps.sandbox.job_watch import PollTimes
from swe_argo.steps.sandbox.kubernetes.exec import PIECE_BYTES, SILENCE_S, Exec, ExecRefused
from swe_argo.steps.sandbox.kubernetes.pod_spec import JOBS_ROOT
from swe_argo.steps.sandbox.kubernetes.pod_status import (
    describe_events,
    describe_pod,
    ended_by_itself,
    failure,
    gone_failure,
    identity,
    out_of_memory,
    out_of_reach,
)
from swe_argo.steps.sandbox.kubernetes.pods import Pods
from swe_argo.steps.sandbox.kubernetes.requests import refused
from swe_argo.steps.sandbox.open_shell import OpenShells

_AWAY = (ExecRefused, HTTPError, OSError)
"""How an exec fails for which neither the command nor the pod need be to blame."""
_NO_RIGHT = (401, 403)
REFUSED_S = 15.0
"""How long a command is offered that the container's own runtime refuses: longer than the kubelet takes to tell of a
container that is ending, and no more, as a shell that was removed does not come back."""


class KubernetesPod:
    """A running pod. ``pod`` is the object as it was when it became ready: anything else under its name is not it."""

    jobs_root = JOBS_ROOT
    poll_times = PollTimes(chunk_bytes=PIECE_BYTES)

    def __init__(self, pods: Pods, exec_: Exec, pod: dict[str, Any], patience: RetryPolicy) -> None:
        self.name: str = pod["metadata"]["name"]
        self.uid: str = pod["metadata"]["uid"]
        self.removed = False
        """Our own doing: its processes live on for a moment, but it is nobody's sandbox any more."""
        self._pods = pods
        self._exec = exec_
        self._pod = pod
        self._last: dict[str, Any] | None = pod
        """As it was seen last; None where it is gone."""
        self._unreached: InfraError | None = None
        """The last command was given up, as the API server did not get through to its node."""
        self._patience = patience
        self._shells = OpenShells(exec_.open_shell, silence_s=SILENCE_S)

    def close(self) -> None:
        """Hang up what is open to it, which was removed. Twice is once."""
        self.removed = True
        self._shells.close()

    def check(self) -> None:
        """Raise what became of the pod, if it is not the one that was handed over. Waits for an API server away."""
        if self.removed:
            raise InfraError(FailureClass.SANDBOX_LOST, f"pod {self.name} was removed")
        self._judge(self._pods.find(self.name))

    def outside_failure(self) -> StepError | None:
        """See ``Sandbox.outside_failure``: what the kubelet, the node's controllers and the API server say of the pod.

        Neither that its container ended with some exit code nor that the runtime can start no command in it is told by
        them: what ran there can bring about both.
        """
        try:
            self.check()
        except StepError as error:
            ended_alone = error.failure_class is FailureClass.SANDBOX_LOST and ended_by_itself(self._last)
            return None if ended_alone else error
        return (out_of_reach(self._last) if self._last else None) or self._unreached

    def short_exec(self, script: str, stdin: bytes = b"", *, wait_s: float = 0.0) -> tuple[int, bytes]:
        """Run one script that may run twice: exit code and stdout. Raises InfraError, ResourceError, ConfigError."""
        try:
            return self._patience.retrying(_Passing(self._patience))(self._once, script, stdin, wait_s)
        except _AWAY as error:
            if self._api_answers():
                raise self._given_up(error) from error
        self.check()
        try:
            return self._patience.retrying(_Passing(self._patience))(self._once, script, stdin, wait_s)
        except _AWAY as error:
            raise self._given_up(error) from error

    def out_of_memory(self) -> ResourceError:
        """See ``Transport.out_of_memory``."""
        return out_of_memory(self._pod)

    def _api_answers(self) -> bool:
        try:
            self._pods.glance(self.name)
        except (ApiException, HTTPError, OSError):
            return False
        return True

    def _once(self, script: str, stdin: bytes, wait_s: float) -> tuple[int, bytes]:
        if self.removed:
            self.check()
        try:
            code, out = self._shells.run(script, stdin, wait_s) or self._exec.once(script, stdin, wait_s)
        except _AWAY:
            self._glance()
            raise
        self._unreached = None
        if code == 137:
            self._glance()
        return code, out

    def _glance(self) -> None:
        """``check`` by one request. Where nobody answers nothing is known, and the caller goes on trying."""
        try:
            pod = self._pods.glance(self.name)
        except (ApiException, HTTPError, OSError):
            return
        self._judge(pod)

    def _judge(self, pod: dict[str, Any] | None) -> None:
        self._last = pod
        if pod is None:
            raise gone_failure(self.name, self._pods.events(self.uid))
        if pod["metadata"]["uid"] != self.uid:
            reason = f"pod {self.name} was replaced by another of its name"
            raise InfraError(FailureClass.SANDBOX_LOST, reason, detail=describe_pod(pod))
        if error := failure(pod):
            raise error
        if identity(pod) != identity(self._pod):
            raise InfraError(
                FailureClass.SANDBOX_LOST, f"pod {self.name} was restarted under us", detail=describe_pod(pod)
            )

    def _given_up(self, error: BaseException) -> StepError:
        """What to say when patience with execs ended: the pod would have been the better answer, each time."""
        doing = f"running a command in pod {self.name}"
        if isinstance(error, ExecRefused) and error.status in _NO_RIGHT:
            return refused(ApiException(status=error.status, reason=error.text), doing)
        if "no space left on device" in str(error).lower():
            return ResourceError(FailureClass.OUT_OF_DISK, f"pod {self.name} ran out of disk", detail=str(error))
        try:
            pod = self._pods.glance(self.name)
        except (ApiException, HTTPError, OSError):
            pod = None
        failure = InfraError(FailureClass.EXEC, f"{doing}: {error}")
        self._unreached = failure if isinstance(error, ExecRefused) and error.unreached else None
        if pod:
            failure = out_of_reach(pod) or failure
            failure.detail = f"{describe_pod(pod)}\n{describe_events(self._pods.events(self.uid))}".strip()
        return failure


KubernetesSandbox = JobSandbox[KubernetesPod]


class _Passing:
    """Whether an exec that failed may go well soon, over the failures of one script."""

    def __init__(self, patience: RetryPolicy) -> None:
        self._without_shell = FailureStreak(REFUSED_S)
        self._without_right = FailureStreak(patience.rights_s)

    def __call__(self, error: BaseException) -> bool:
        refusal = error if isinstance(error, ExecRefused) else None
        no_shell = refusal is not None and refusal.by_runtime
        no_right = refusal is not None and refusal.status in _NO_RIGHT
        passing = self._without_shell.goes_on(no_shell), self._without_right.goes_on(no_right)
        return any(passing) if no_shell or no_right else isinstance(error, _AWAY)
