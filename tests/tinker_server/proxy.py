"""The proxy as a process in front of a server that speaks Tinker's protocol."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from swe_argo.steps.serving.chat_template import ChatTemplate
from tests.paths import ROOT
from tests.tinker_server.server import KEY, Sampled, TinkerServer

CALLER_KEY, ADMIN_KEY = "caller", "admin"


@dataclass
class RunningProxy:
    """``url`` ends in /v1; ``server.answer`` may be changed while it runs."""

    url: str
    server: TinkerServer
    template: ChatTemplate
    traces: Path
    process: subprocess.Popen[str]

    @property
    def root(self) -> str:
        return self.url.removesuffix("/v1")

    def answer(self, text: str, **more: object) -> Sampled:
        """An answer of the model that says this, and ends."""
        end = [] if more.get("at_limit") else [self.template.stop_ids[0]]
        return Sampled([*self.template.encode(text), *end], **more)  # type: ignore[arg-type]

    def says(self, text: str, **more: object) -> None:
        """Let the model say this from now on."""
        sampled = self.answer(text, **more)
        self.server.answer = lambda *_: sampled


@contextmanager
def running_proxy(server: TinkerServer, model: Path, folder: Path, *flags: str) -> Iterator[RunningProxy]:
    """``python -m swe_argo.steps.proxy``, ready for calls; ended by SIGTERM, within seconds."""
    keys = {"LLM_API_KEY": CALLER_KEY, "SWE_ARGO_PROXY_ADMIN_KEY": ADMIN_KEY, "TINKER_API_KEY": KEY}
    command = [
        *(
            sys.executable,
            "-W",
            "error::FutureWarning",
            "-m",
            "swe_argo.steps.proxy",
            "--base-model=test/model",
            "--port=0",
        ),
        *(f"--tokenizer={model}", f"--traces={folder / 'traces'}", *flags),
    ]
    environment = os.environ | keys | {"TINKER_BASE_URL": server.url, "PYTHONPATH": str(ROOT), "TINKER_TELEMETRY": "0"}
    with (
        (folder / "stderr").open("w") as errors,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder
        ) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("the proxy listens at "), (folder / "stderr").read_text()
            yield RunningProxy(line.split()[-1], server, ChatTemplate(model), folder / "traces", process)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 128 + signal.SIGTERM, (folder / "stderr").read_text()
        finally:
            process.kill()
