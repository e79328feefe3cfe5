"""The learner as a child process: started when it is first needed, restarted when it dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tenacity import (
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_after_attempt,
    stop_any,
    stop_when_event_set,
    wait_exponential_jitter,
)

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import EXIT_CONFIG, EXIT_INFRA, ConfigError, InfraError, StepError
from swe_argo.steps.store import Store
from swe_argo.workflows.local.child_log import ChildLog

GRACE_S = 15.0
"""Seconds that the learner has to end after its stdin closed."""


class LearnerProcess:
    """Learner of one training's steps. After an InfraError the step is retried up to ``retries`` times."""

    def __init__(self, store: Store, training: str, retries: int, note: Callable[[str], None]) -> None:
        self._store, self._training, self._retries, self._note = store, training, retries, note
        self._process: subprocess.Popen[str] | None = None
        self._log = ChildLog(store, training, "learner")
        self._over = threading.Event()
        self.is_preparing = False
        """Whether killing it now would lose no work."""

    def prepare(self) -> None:
        """Create the adapter for the first step. Raises as ``learn``, also if Tinker rejects the spec."""
        self.is_preparing = True
        self._learn_with_retries(0, "creating the adapter")
        self.is_preparing = False

    def learn(self, step: int) -> None:
        """Learn a step whose rollouts are in the store.

        Raises ConfigError if the spec or an access right is wrong, InfraError if the retries are used up, StepError for
        a bug.
        """
        self._learn_with_retries(step, f"learning step {step}")

    def _learn_with_retries(self, step: int, operation: str) -> None:
        """Send a step to the learner, again after an InfraError. The final error names the learner's log."""
        retrying = Retrying(
            retry=retry_if_exception_type(InfraError),
            wait=wait_exponential_jitter(initial=1, max=60),
            stop=stop_any(stop_after_attempt(1 + self._retries), stop_when_event_set(self._over)),
            sleep=sleep_using_event(self._over),
            before_sleep=lambda state: self._note(f"{operation} failed, trying again: {_reason(state.outcome)}"),
            reraise=True,
        )
        try:
            retrying(self._request, step)
        except StepError as error:
            self._log.save_for(error)
            raise

    def kill(self) -> None:
        """Kill the learner; the current step starts over in the next session."""
        self._over.set()
        if self._process:
            self._process.kill()

    def close(self) -> None:
        """End the learner and store its log."""
        self._over.set()
        if self._process is not None:
            _end(self._process)
        self._log.close()

    def _request(self, step: int) -> None:
        """Send a step to the learner, starting one if needed, and wait for its result. Raises the error it reports."""
        if self._over.is_set():
            raise InfraError(FailureClass.STOPPED, "the learner was stopped")
        if self._process is None or self._process.poll() is not None:
            if self._process is not None:
                _end(self._process)  # closes its pipes
            self._process = self._begin()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{step}\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:  # it died before it read the request
            line = ""
        if not line:
            code = self._process.wait()
            raise InfraError(FailureClass.STEP_KILLED, f"the learner died (exit code {code})")
        response = json.loads(line)
        if "step" in response:
            return
        reason, code = response["reason"], response["exit_code"]
        if code == EXIT_CONFIG:
            raise ConfigError(reason)
        raise InfraError(FailureClass.MODEL, reason) if code == EXIT_INFRA else StepError(FailureClass.BUG, reason)

    def _begin(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "swe_argo.workflows.local.learning", self._store.url, self._training],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log.file,
            text=True,
            env={**os.environ, "PYTHONUTF8": "1"},
            start_new_session=True,  # Ctrl-C reaches only this process
        )


def _end(process: subprocess.Popen[str]) -> None:
    """Close the learner's stdin, which ends it, and kill it after GRACE_S."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it died before it read its input
        process.stdin.close()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _reason(outcome: object) -> str:
    error = outcome.exception() if hasattr(outcome, "exception") else None
    return str(error)


@contextmanager
def running_learner(store: Store, training: str, retries: int, note: Callable[[str], None]) -> Iterator[LearnerProcess]:
    """Yield a learner, and close it afterwards."""
    learner = LearnerProcess(store, training, retries, note)
    try:
        yield learner
    finally:
        learner.close()
