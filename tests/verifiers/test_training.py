"""The sampled tokens that a trainer gets of an episode, by verifiers' own client of vLLM."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer

from tests.byte_model import make_model
from tests.http_server import Handler, serve

vf = pytest.importorskip("verifiers.v1", reason="needs verifiers: make test-verifiers")

from tests.verifiers.episodes import GOLD, make_env, run_episode  # noqa: E402


@dataclass
class GenerateServer:
    """``url`` is the base_url of a client. ``texts``: the answers in turn."""

    tokenizer: Tokenizer
    texts: list[str]
    url: str = ""
    prompts: list[list[int]] = field(default_factory=list)
    sampled: list[list[int]] = field(default_factory=list)


def logprob_of(token: int) -> float:
    return -0.25 - 0.001 * (token % 7)


@contextmanager
def generate_server(model: Path, *texts: str) -> Iterator[GenerateServer]:
    """Run a server for one conversation. ``model``: the folder of its tokenizer."""
    state = GenerateServer(Tokenizer.from_file(str(model / "tokenizer.json")), list(texts))

    class Generate(Handler):
        def respond(self) -> None:
            if self.path.endswith("/models"):
                return self.answer(200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]})
            if self.path != "/inference/v1/generate":
                return self.answer(404)
            request = json.loads(self.body())
            tokens = state.tokenizer.encode(state.texts[len(state.sampled)], add_special_tokens=False).ids
            state.prompts.append(request["token_ids"])
            state.sampled.append(tokens)
            content = [{"token": f"token_id:{token}", "logprob": logprob_of(token)} for token in tokens]
            choice = {"index": 0, "token_ids": tokens, "logprobs": {"content": content}, "finish_reason": "stop"}
            return self.answer(200, {"request_id": f"request-{len(state.sampled)}", "choices": [choice]})

    with serve(Generate) as address:
        state.url = f"{address}/v1"
        yield state


def call(tool: str, **arguments: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': tool, 'arguments': arguments})}\n</tool_call><|im_end|>"


def make_qwen3(folder: Path) -> Path:
    """Write a tokenizer of bytes with Qwen3's special tokens."""
    file = make_model(folder) / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in ("<tool_response>", "</tool_response>")])
    tokenizer.save(str(file))
    special = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_only_sampled_tokens_are_trained(exported: Path, tmp_path: Path) -> None:
    model = make_qwen3(tmp_path / "model")
    texts = ("Let me look.\n\n" + call("bash", command="ls"), call("submit_solution", patch=GOLD))
    with generate_server(model, *texts) as server:
        client = vf.TrainClientConfig(
            base_url=server.url, api_key_var="NO_KEY", renderer={"name": "qwen3"}, renderer_model_name=str(model)
        )
        episode = asyncio.run(run_episode(make_env(exported), client))
    [trace] = episode.traces
    assert (trace.ok, trace.reward, trace.errors) == (True, 1.0, [])
    [branch] = trace.branches
    sampled = [token for tokens in server.sampled for token in tokens]
    pairs = list(zip(branch.token_ids, branch.sampled_mask, branch.logprobs, strict=True))
    assert [token for token, mask, _ in pairs if mask] == sampled
    assert [logprob for _, mask, logprob in pairs if mask] == [logprob_of(token_id) for token_id in sampled]
    assert server.prompts[1][: len(server.prompts[0])] == server.prompts[0]
    assert "Exit code: 0" in server.tokenizer.decode(server.prompts[1])
