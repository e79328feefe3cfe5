"""A training's own proxy as a child process: restarted when it dies, ended with this process."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import IO

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import TrainFile, Weights, WeightsFile
from swe_argo.steps.errors import EXIT_CONFIG, ConfigError, InfraError, StepError, one_line
from swe_argo.steps.proxy import PROXY
from swe_argo.steps.store import Store
from swe_argo.steps.training.served_weights import PATIENCE_S, PAUSE_S, await_weights
from swe_argo.workflows.local.child_log import ChildLog

REFRESH_S = 86_400.0
"""Seconds between two reads of the pointer, so that it is read only at the start: a late read would undo a push."""
GRACE_S = 10.0


class ProxyProcess:
    """A proxy in a child process. Rollouts call ``url`` with ``env`` set; the port survives restarts.

    ``on_loss`` is called from another thread, with the reason, when the proxy cannot be restarted.
    """

    def __init__(self, training: TrainFile, store: Store, on_loss: Callable[[StepError], None]) -> None:
        self._training, self._store, self._on_loss = training, store, on_loss
        self._admin_key = secrets.token_hex(16)
        caller_key = secrets.token_hex(16)
        # Set under both names, so that a user's own key for other endpoints never reaches this proxy.
        self.env = {"LLM_API_KEY": caller_key, "OPENAI_API_KEY": caller_key}
        self.url = ""
        self.crash_count = 0
        """Number of processes that died without being ended."""
        self.is_down = True
        self._port = 0
        self._log = ChildLog(store, training.name, "proxy")
        self._over = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._watch, name="proxy", daemon=True)

    def begin(self) -> None:
        """Start the proxy; return when it accepts calls.

        Raises ConfigError if the proxy rejects its settings, InfraError if it fails otherwise, with the proxy's
        message.
        """
        try:
            self._start()
        except StepError as error:
            self._log.save_for(error)
            raise
        self._thread.start()

    def serve(self, weights: Weights, is_over: Callable[[], bool]) -> None:
        """Wait until the proxy answers new calls with these weights, or until ``is_over`` returns True.

        Raises ConfigError if Tinker no longer has them or rejects the API key; InfraError after PATIENCE_S.
        """
        deadline, failure = time.monotonic() + PATIENCE_S, "it does not answer"
        while not is_over():
            try:
                self._push_weights(weights)
            except (OSError, HTTPException) as error:  # the proxy is being restarted, or the service fails for a while
                failure = str(error)
            else:
                return
            if time.monotonic() > deadline:
                message = f"the proxy does not serve weights {weights.version}: {failure}"
                timeout = InfraError(FailureClass.MODEL, message)
                self._log.save_for(timeout)
                raise timeout
            self._over.wait(PAUSE_S)

    def _push_weights(self, weights: Weights) -> None:
        """Make the proxy use these weights. Raises ConfigError as ``serve``, OSError if another try may succeed."""
        body = {"version": weights.version, "sampler_path": weights.sampler_path}
        with closing(HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)) as connection:
            key = {"Authorization": f"Bearer {self._admin_key}"}
            connection.request("POST", "/admin/weights", json.dumps(body), key)
            response = connection.getresponse()
            if response.status == HTTPStatus.OK:
                return
            reason = one_line(_error_message(response.read()), 500)
        if response.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise ConfigError(reason, field="TINKER_API_KEY", failure_class=FailureClass.MODEL_ACCESS)
        if response.status != HTTPStatus.BAD_REQUEST:
            raise OSError(reason)
        message = (
            f"weights {weights.version} ({weights.sampler_path}) cannot be served: {reason}. If they have expired, "
            'delete the lines after the last one with "kept": true from checkpoints.jsonl to resume from there'
        )
        raise ConfigError(message, field="checkpoints")

    def kill(self) -> None:
        """Kill the proxy, from any thread, and start no other; ``close`` must still be called."""
        self._over.set()
        if self._process:
            self._process.kill()

    def close(self) -> None:
        """Terminate the proxy without waiting for open calls: it has no callers any more."""
        self._over.set()
        if self._process:
            self._process.terminate()
        if self._thread.is_alive():  # it may be about to start another process
            self._thread.join(GRACE_S)
        if self._process:
            self._process.kill()
            with self._process:  # closes its pipes
                pass
        self._log.close()

    def _watch(self) -> None:
        """Restart the proxy when it dies; give up after PATIENCE_S of failed starts, or at once for a ConfigError."""
        failing_since = None
        while not self._over.is_set():
            assert self._process is not None
            self._process.wait()
            with self._process:  # closes its pipes
                pass
            self.is_down = True
            self.crash_count += 1
            if self._over.wait(PAUSE_S):
                return
            try:
                self._start()
                failing_since = None
            except StepError as error:
                failing_since = failing_since or time.monotonic()
                if isinstance(error, ConfigError) or time.monotonic() - failing_since > PATIENCE_S:
                    self._log.save_for(error)
                    self._on_loss(error)
                    return

    def _start(self) -> None:
        """Start a process and wait for the line with its URL. Raises ConfigError or InfraError, by its exit code."""
        spec = self._training.spec
        flags = PROXY.command_line(
            {
                "base-model": spec.base_model,
                "tokenizer": spec.tokenizer,
                "store": self._store.url,
                "pointer": key(WeightsFile, spec.name),
                "refresh": REFRESH_S,
                "port": self._port,
                "tied": True,
            }
        )
        log_start = self._log.size
        self._process = _begin(
            [sys.executable, "-m", "swe_argo.steps.proxy", *flags], self._environment(), self._log.file
        )
        if self._over.is_set():  # killed before the process existed
            self._process.kill()
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            message = self._log.read(log_start).strip() or f"the proxy ended with exit code {code} and no message"
            last_line = message.splitlines()[-1]
            raise ConfigError(last_line) if code == EXIT_CONFIG else InfraError(FailureClass.MODEL, last_line)
        self.url = line.split()[-1]
        # A restarted proxy gets the same port, so that running rollouts keep their URL.
        self._port = int(self.url.rpartition(":")[2].removesuffix("/v1"))
        self.is_down = False

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.env, "SWE_ARGO_PROXY_ADMIN_KEY": self._admin_key, "PYTHONUTF8": "1"}


class ExternalProxy:
    """A proxy that this process does not manage; it follows the training's weights by itself."""

    crash_count = 0
    is_down = False

    def __init__(self, url: str, training: str) -> None:
        self.url, self.env = url, dict[str, str]()
        self._training = training

    def serve(self, weights: Weights, is_over: Callable[[], bool]) -> None:
        """Wait until it answers with these weights or ``is_over`` returns True.

        Raises ConfigError if it follows another training, InfraError if it does not serve them before a timeout.
        """
        await_weights(self.url, self._training, weights.version, is_over)


def _error_message(body: bytes) -> str:
    """Return the message of an error response in OpenAI's format."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")


def _begin(command: list[str], environment: dict[str, str], log: IO[bytes]) -> subprocess.Popen[str]:
    """Start the process in its own session, out of reach of Ctrl-C; its stdin is a pipe that closes when we end."""
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        cwd=Path.cwd(),
        start_new_session=True,
    )
