"""A training of a scripted model: its spec, its server and its results."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swe_argo.steps.contracts.training import Checkpoint
from swe_argo.steps.serving.chat_template import ChatTemplate
from swe_argo.steps.store import open_store
from swe_argo.steps.training.checkpoints import CheckpointLog
from tests import solutions
from tests.byte_model import make_model
from tests.tinker_server.server import KEY, Sampled, TinkerServer, tinker_server
from tests.workflows.command import swe_argo

POOL = ["mini__slugkit-1", "mini__slugkit-2", "mini__gridprint-1", "mini__ledgerlet-1"]
AGENT = Path(__file__).with_name("one_word.py")


@dataclass
class Bench:
    """A server, the files of its model, and the folder of a test."""

    server: TinkerServer
    folder: Path
    model: Path
    requests_held: int = 0
    """Number of requests delayed by ``hold``."""

    @property
    def env(self) -> dict[str, str]:
        """Return a user's environment. The proxy must not get the key of another endpoint."""
        keys = {"TINKER_API_KEY": KEY, "OPENAI_API_KEY": "sk-of-somebody-else", "TINKER_TELEMETRY": "0"}
        return {**keys, "TINKER_BASE_URL": self.server.url}

    def spec(self, store: str, **more: Any) -> Path:
        """Write a spec that learns from two attempts at each of two instances per step."""
        lines = {
            "name": "one", "base_model": "test/model", "tokenizer": str(self.model), "steps": 2, "groups": 2,
            "group_size": 2, "workers": 2, "store": str(self.folder / store), "agent": f"{self.agent}:OneWord",
            "allow_host": True, "confirm": "never", **more,
        }  # fmt: skip
        file = self.folder / f"{store}.yaml"
        ids = "".join(f"\n      - {instance_id}" for instance_id in POOL)
        select = f"run:\n  select:\n    instance_ids:{ids}\n"
        file.write_text("".join(f"{name}: {value}\n" for name, value in lines.items()) + select)
        return file

    @property
    def agent(self) -> Path:
        """Write the agent, with its patch for each instance."""
        file = self.folder / AGENT.name
        patches = {instance_id: solutions.rows()[instance_id]["patch"] for instance_id in POOL}
        if not file.exists():
            file.write_text(AGENT.read_text("utf-8").replace(" = {}\n", f" = {patches!r}\n"))
        return file

    def checkpoints(self, store: str) -> list[Checkpoint]:
        return CheckpointLog(open_store(str(self.folder / store)), "one").read()

    def hold(self, route: str, until: Callable[[], bool]) -> None:
        """Answer requests of a route with 503 until a condition holds; clients retry."""

        def status(requested: str) -> int | None:
            if requested != route or until():
                return None
            self.requests_held += 1
            return 503

        self.server.before = status

    def train(self, file: Path, *words: str) -> str:
        command = ("train", "--config_path", str(file), *words)
        result = swe_argo(*command, env=self.env, cwd=self.folder, timeout_s=600)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def learned(self, store: str) -> list[tuple[str, str]]:
        """Return for each step the digest of its samples and its state (the server's hash of all it learnt)."""
        states = self.server.trainer.states
        return [(item.samples_sha256, states[item.weights.state_path or ""]) for item in self.checkpoints(store)]


@contextmanager
def bench(folder: Path) -> Iterator[Bench]:
    """Serve a model whose word depends on its weights and its prompt."""
    model = make_model(folder / "model")
    template = ChatTemplate(model)
    words = [Sampled([*template.encode(word), template.stop_ids[0]]) for word in ("I mend it.", "I leave it.")]

    def answer(prompt: list[int], _parameters: dict[str, Any], weights: str) -> Sampled:
        state = server.trainer.states.get(weights, weights)
        return words[hashlib.sha256(f"{state} {prompt}".encode()).digest()[0] % 2]

    with tinker_server(answer, context=200_000) as server:
        yield Bench(server, folder, model)
