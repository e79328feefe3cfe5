"""verl's own loop classes on a CPU, with a tokenizer of bytes and a scripted model server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf
from transformers import PreTrainedTokenizerFast
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, DictConfigWrap, ToolListWrap
from verl.tools.tool_registry import load_all_tools
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

from swe_argo.verl import FOLDER
from tests.byte_model import TEMPLATE, make_model
from tests.verl.test_config import composed

Answers = Callable[[str, int], "str | Awaitable[str]"]
"""Prompt text and number of the turn, from 0 -> the model's answer."""


def call(tool: str, **arguments: str) -> str:
    """Return a tool call in the format hermes."""
    return f"<tool_call>\n{json.dumps({'name': tool, 'arguments': arguments})}\n</tool_call><|im_end|>"


def play(*texts: str) -> Answers:
    """Play the same answers in every conversation, and then end it."""
    return lambda _prompt, turn: texts[turn] if turn < len(texts) else "I am done.<|im_end|>"


def recorded(*texts: str, look: Callable[[], object] = lambda: None) -> tuple[list[str], Answers]:
    """Return the list of prompts that fills up, and a ``play`` that calls ``look`` at each turn."""
    prompts: list[str] = []

    def answers(prompt: str, turn: int) -> str:
        prompts.append(prompt)
        look()
        return str(play(*texts)(prompt, turn))

    return prompts, answers


class ScriptedServer:
    """A loop's ``LLMServerClient``. Not a dataclass: Hydra would take it for configuration."""

    def __init__(self, tokenizer: Any, answers: Answers) -> None:
        self.tokenizer, self.answers = tokenizer, answers
        self.generated: dict[str, list[list[int]]] = {}
        """Sampled tokens of each conversation, in order."""

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        turns = self.generated.setdefault(request_id, [])
        text = self.answers(self.tokenizer.decode(prompt_ids), len(turns))
        ids = self.tokenizer.encode(text if isinstance(text, str) else await text, add_special_tokens=False)
        turns.append(ids)
        logprobs = self.logprobs(ids) if sampling_params.get("logprobs") else None
        return TokenOutput(token_ids=ids, log_probs=logprobs, stop_reason="completed")

    @staticmethod
    def logprobs(ids: list[int]) -> list[float]:
        """Return made-up log probabilities; those of neighbours differ."""
        return [-0.25 - 0.001 * (token % 7) for token in ids]


class Loops:
    """Makes loops like verl's worker."""

    def __init__(self, folder: Path, *overrides: str) -> None:
        file = make_model(folder) / "tokenizer.json"
        special = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
        self.tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file), chat_template=TEMPLATE, **special)
        self.config: DictConfig = composed(*overrides)
        self.tools = load_all_tools(str(FOLDER / "tools.yaml"), None)

    @classmethod
    def like(cls, loops: Loops, *overrides: str) -> Loops:
        """Return a copy with another configuration."""
        variant = cls.__new__(cls)
        variant.tokenizer, variant.tools, variant.config = loops.tokenizer, loops.tools, composed(*overrides)
        return variant

    def make(self, server: ScriptedServer | None, **options: Any) -> Any:
        """Make a loop for one trajectory. ``options``: keys of agent_loops.yaml."""
        entry = {"name": "swe_argo", "_target_": "swe_argo.verl.SweAgentLoop", **options}
        return self.instantiate(OmegaConf.create(entry), server)

    def instantiate(self, entry: Any, server: ScriptedServer | None = None) -> Any:
        return hydra.utils.instantiate(
            config=entry,
            trainer_config=DictConfigWrap(self.config),
            server_manager=server,
            tokenizer=self.tokenizer,
            processor=None,
            hf_model_type="qwen3",
            dataset_cls=RLHFDataset,
            data_config=DictConfigWrap(self.config.data),
            tools=ToolListWrap(self.tools),
        )

    async def run(self, store: str, instance_id: str, answers: Answers, **options: Any) -> AgentLoopOutput:
        return await self.serve(store, instance_id, ScriptedServer(self.tokenizer, answers), **options)

    async def serve(
        self, store: str, instance_id: str, server: ScriptedServer, split: str = "train", **options: Any
    ) -> AgentLoopOutput:
        """Run a trajectory with a server that is inspected afterwards."""
        loop = self.make(server, **options)
        fields = row(store, instance_id, split) | {"global_steps": 10}
        return await loop.run({"temperature": 1.0, "logprobs": True}, **fields)

    def play(self, store: str, instance_id: str, answers: Answers, **options: Any) -> AgentLoopOutput:
        """Run a trajectory in a new event loop."""
        return asyncio.run(self.run(store, instance_id, answers, **options))


def row(store: str, instance_id: str, split: str = "train") -> dict[str, Any]:
    prompt = [{"role": "user", "content": f"Mend {instance_id}."}]
    extra = {"instance_id": instance_id, "split": split, "index": 0, "store": store}
    return {"raw_prompt": prompt, "extra_info": extra, "tools_kwargs": {}, "uid": "u", "session_id": 0}
