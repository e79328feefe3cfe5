"""An agent program in a rollout of verl: the sampler answers its requests, and keeps each token."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator

import pytest

from swe_argo.steps.agents.templates import PROMPTS
from swe_argo.steps.contracts.data import Answer
from swe_argo.steps.contracts.recipe import AgentProgram
from swe_argo.steps.contracts.run_spec import WireProtocol
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.workflows.rollouts.task import RolloutTask
from swe_argo.workflows.verl.token_model import TokenModel, open_recorder, work
from tests import small_agent
from tests.steps.agents.machine import Box
from tests.steps.agents.program.running import PROGRAM
from tests.steps.agents.solved_units import run_file
from tests.steps.agents.tasks import instance
from tests.steps.gateway.toolchain import needs_go
from tests.workflows.verl.test_token_model import END, Letters

pytestmark = needs_go


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def called(command: str) -> str:
    call = json.dumps({"name": "bash", "arguments": {"command": command}})
    return f"I act.\n<tool_call>\n{call}\n</tool_call>$"


@pytest.mark.parametrize("protocol", list(WireProtocol))
def test_rollout_is_one_sampled_sequence(box: Box, loop: asyncio.AbstractEventLoop, protocol: WireProtocol) -> None:
    box.sandbox.write(PROGRAM, (small_agent.FOLDER / "small-agent").read_bytes())
    answers = [called("echo a = 3 >a.py"), called("cat a.py"), "Mended.$"]
    model = TokenModel(
        Letters(answers),
        loop,
        name="qwen",
        decode=lambda ids: "".join(map(chr, ids)).replace("$", ""),
        end=END,
        max_prompt=100_000,
        max_response=100_000,
        tool_format="hermes",
    )
    program = AgentProgram(recipe=small_agent.recipe(PROGRAM, protocol))
    instruction = (PROMPTS / "program.j2").read_text("utf-8")
    run = run_file("program").model_copy(update={"program": program, "instruction": instruction})
    task = RolloutTask("", run, instance(), Answer(instance_id="a__b-1"))
    recorder = open_recorder(task, "run", 1, "qwen")
    ended = work(task, box.sandbox, model, recorder)
    assert ended.reason is StopReason.FINISHED
    assert (box.testbed / "a.py").read_text() == "a = 3\n"
    (stretch,) = model.take_sequences()
    sampled = "".join(chr(token) for token, mine in zip(stretch.tokens, stretch.sampled, strict=True) if mine)
    assert sampled == "".join(answers)
    assert [turn.message for turn in recorder.turns if turn.source == "agent"] == ["I act.", "I act.", "Mended."]
    assert (recorder.usage.calls, recorder.usage) == (3, model.usage)
