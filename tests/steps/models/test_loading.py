"""The library, loaded without what nobody asks for: in a process of its own, for a library is loaded once."""

from __future__ import annotations

import json
import subprocess
import sys

LOADED = """
import json, sys
from steps.models.loading import load_openai
openai = load_openai()
client = openai.OpenAI(api_key="k", base_url="http://127.0.0.1:9/v1")
client.chat.completions.with_streaming_response
before = sum(name.startswith("openai.types.") for name in sys.modules)
aiohttp = "aiohttp" in sys.modules
from openai.types import CompletionUsage, shared_params
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
import openai.types.beta.threads
after = sum(name.startswith("openai.types.") for name in sys.modules)
print(json.dumps({
    "before": before, "after": after, "aiohttp": aiohttp, "again": load_openai() is openai,
    "same": ChatCompletion is openai.types.chat.ChatCompletion,
    "usage": CompletionUsage(completion_tokens=1, prompt_tokens=2, total_tokens=3).total_tokens,
    "missing": hasattr(openai.types, "NothingOfTheKind"), "all": len(dir(openai.types)) > 100,
    "thread": hasattr(openai.types.beta.threads, "Message"), "params": hasattr(shared_params, "FunctionDefinition"),
    "response": Response.__name__,
}))
client.close()
"""


def _told(program: str) -> dict[str, object]:
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, object] = json.loads(done.stdout)
    return told


def test_types_that_nobody_asks_for_are_not_loaded_and_all_are_there_when_asked_for() -> None:
    told = _told(LOADED)
    before, after = told.pop("before"), told.pop("after")
    assert isinstance(before, int)
    assert isinstance(after, int)
    assert before < 150 < after
    assert told == {
        "aiohttp": False, "again": True, "same": True, "usage": 3, "missing": False, "all": True, "thread": True,
        "params": True, "response": "Response",
    }  # fmt: skip


def test_a_library_that_is_loaded_already_is_taken_as_it_is() -> None:
    told = _told("import openai, json; from steps.models.loading import load_openai\n"
                 "print(json.dumps({'same': load_openai() is openai}))")  # fmt: skip
    assert told == {"same": True}
