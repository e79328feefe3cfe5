"""vLLM's ``/inference/v1/generate`` for tests: tokens in, scripted tokens out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import Tokenizer

from tests.http_server import Handler, serve


@dataclass
class GenerateServer:
    """``url`` is the base_url of a client. ``texts``: the answers in turn."""

    tokenizer: Tokenizer
    texts: list[str]
    url: str = ""
    prompts: list[list[int]] = field(default_factory=list)
    sampled: list[list[int]] = field(default_factory=list)


def logprob_of(token: int) -> float:
    """Return a made-up log probability."""
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
