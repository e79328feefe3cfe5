"""verl's own trainer (V1) with lost rollouts, and with rollouts of several sequences: worker, queue and advantages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.rollouts.stores import INSTANCES, plan_failing_rows
from tests.solutions import rows as mini_rows
from tests.workflows.command import summary, swe_argo

verl = pytest.importorskip("verl", reason="needs verl: make test-verl")

import numpy as np  # noqa: E402
import ray  # noqa: E402
import transfer_queue as tq  # noqa: E402
from transformers import Qwen3Config  # noqa: E402
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ  # noqa: E402
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer  # noqa: E402
from verl.trainer.ppo.v1.trainer_base import PPOTrainer  # noqa: E402
from verl.utils import tensordict_utils as tu  # noqa: E402

from tests.verl.loops import ScriptedServer, call, play, row  # noqa: E402
from tests.verl.test_config import composed  # noqa: E402
from tests.verl.test_scaffold_loop import Rollout, called, texts  # noqa: E402
from tests.verl.test_tool_loop import GOLD, INSTANCE  # noqa: E402

if TYPE_CHECKING:
    from tests.verl.loops import Loops

GROUP = 4


@pytest.fixture(scope="module")
def config(loops: Loops, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    model = tmp_path_factory.mktemp("model")
    loops.tokenizer.save_pretrained(model)
    Qwen3Config(vocab_size=len(loops.tokenizer), architectures=["Qwen3ForCausalLM"]).save_pretrained(model)
    config = composed(
        f"actor_rollout_ref.model.path={model}", f"actor_rollout_ref.rollout.n={GROUP}",
        "algorithm.norm_adv_by_std_in_grpo=false", "algorithm.rollout_correction=null",
        "transfer_queue.enable=true", "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    )  # fmt: skip
    ray.init(address="local", num_cpus=4, include_dashboard=False, logging_level="ERROR")
    try:
        tq.init(config.transfer_queue)
        yield config
    finally:
        tq.close()
        ray.shutdown()


def test_lost_rollout_leaves_the_group(config: Any, loops: Loops, isolation: None, tmp_path: Path) -> None:
    store = plan_failing_rows(tmp_path, "solve 3", retries=0)
    conversations: list[str] = []

    def answers(prompt: str, turn: int) -> str:
        """Solve it in two of three conversations."""
        if turn:
            return "Done."
        conversations.append(prompt)
        return call("submit_solution", patch=GOLD) if len(conversations) != 2 else "I give up."

    batch = roll_out(config, row(store, INSTANCE), ScriptedServer(loops.tokenizer, answers))
    assert len(conversations) == GROUP - 1
    assert sorted(batch.keys) == ["u_0_0", "u_1_0", "u_3_0"]
    advantages = compute_advantages(config, batch)
    assert sorted(advantages) == pytest.approx([-2 / 3, 1 / 3, 1 / 3])  # of a fourth that counts as 0: 1/2 and -1/2


def test_lost_validation_rollout_fails(config: Any, loops: Loops, isolation: None, tmp_path: Path) -> None:
    store = plan_failing_rows(tmp_path, "solve 1", retries=0)  # whichever of both comes first

    def answers(prompt: str, _turn: int) -> str:
        [patch] = [mini_rows()[instance_id]["patch"] for instance_id in INSTANCES if f"Mend {instance_id}." in prompt]
        return call("submit_solution", patch=patch)

    server = ScriptedServer(loops.tokenizer, answers)
    metrics = validate(config, loops, server, columns(*(row(store, instance_id, "val") for instance_id in INSTANCES)))
    assert metrics["val-core/mini/acc/mean@1"] == 0.5
    assert metrics["val-aux/mini/acc_success_only/mean@1"] == 1.0
    run = "grpo-val-000001"
    swe_argo("report", run, "--store", store)
    figures = summary(store, run)
    assert (figures.headline.resolved, figures.headline.total) == (1, 2)


def test_sequences_share_the_advantage(config: Any, loops: Loops, isolation: None, tmp_path: Path) -> None:
    small = config.copy()
    small.data.max_prompt_length, small.data.max_response_length = 30_000, 9_000
    small.actor_rollout_ref.rollout.n = 2
    solution = texts("openhands")
    starts: list[str] = []

    def answers(prompt: str, turn: int) -> str:
        """Solve it in one conversation; in the other, peek until the context is full."""
        if not turn:
            starts.append(prompt)
        if (not turn and len(starts) == 1) or "Peek." in prompt:
            return called("execute_bash", "Peek.", command="ls -la") if turn < 14 else solution[-1]
        return solution[turn]

    row = Rollout(loops, tmp_path / "out", "openhands", play()).row
    batch = roll_out(small, {**row, "raw_prompt": row["prompt"]}, ScriptedServer(loops.tokenizer, answers))
    groups: dict[str, list[float]] = {}
    for name, advantage in zip(batch.keys, compute_advantages(small, batch), strict=True):
        groups.setdefault(name.rpartition("_")[0], []).append(advantage)
    idle, solved = sorted(groups.values())
    assert len(idle) > 1
    assert (set(idle), set(solved)) == ({-0.5}, {0.5})


def columns(*rows: dict[str, Any]) -> dict[str, Any]:
    batch: dict[str, Any] = {"index": np.arange(len(rows))}
    fields = {
        "raw_prompt": [item["raw_prompt"] for item in rows],
        "extra_info": [item["extra_info"] for item in rows],
        "agent_name": [item.get("agent_name", "swe_argo") for item in rows],
        "data_source": ["mini"] * len(rows),
    }
    for name, values in fields.items():
        batch[name] = np.empty(len(rows), dtype=object)
        batch[name][:] = values
    return batch


def roll_out(config: Any, fields: dict[str, Any], server: ScriptedServer) -> Any:
    """Make a step's rollouts of a row like verl's trainer; return the replay buffer's batch."""
    batch = tu.get_tensordict(columns(fields) | {"uid": np.array(["u"], dtype=object)})
    tu.assign_non_tensor_data(batch, "global_steps", 1)
    tag = {"is_prompt": True, "status": "pending", "global_steps": 1}
    tq.kv_batch_put(keys=["u"], partition_id="train", tags=[tag])
    generate(config, server, batch)
    batch, _ = replay_buffer(config).sample(global_steps=1, partition_id="train", batch_size=1)
    return batch


def generate(config: Any, server: ScriptedServer, batch: Any) -> None:

    async def work() -> None:
        worker = AgentLoopWorkerTQ.__ray_metadata__.modified_class(config, server, None, None)
        await worker.generate_sequences(batch)
        await asyncio.gather(*worker.background_tasks)

    asyncio.run(work())


def replay_buffer(config: Any) -> ReplayBuffer:
    sampler = config.trainer.v1.sampler
    return ReplayBuffer(
        trainer_mode="sync",
        trainer_config=config.trainer.v1.sync,
        max_off_policy_threshold=sampler.max_off_policy_threshold,
        max_off_policy_strategy=sampler.max_off_policy_strategy,
        sampler_kwargs=sampler.sampler_kwargs,
    )


def validate(config: Any, loops: Loops, server: ScriptedServer, batch: dict[str, Any]) -> dict[str, float]:
    """Return the metrics of a validation by the trainer's own method."""
    manager = SimpleNamespace(generate_sequences=lambda prompts: generate(config, server, prompts))
    trainer = SimpleNamespace(
        config=config,
        global_steps=1,
        tokenizer=loops.tokenizer,
        val_dataloader=[batch],
        agent_loop_manager=manager,
        replay_buffer=replay_buffer(config),
        reward_loop_manager=SimpleNamespace(reward_loop_worker_handles=[]),
        _maybe_log_val_generations=lambda **_: None,
        _dump_generations=lambda **_: None,
    )
    trainer._val_metrics_update = partial(PPOTrainer._val_metrics_update, trainer)
    metrics: dict[str, float] = PPOTrainer._validate(trainer)
    return metrics


def compute_advantages(config: Any, batch: Any) -> list[float]:
    """Compute each rollout's advantage by the trainer's own method, and clear the queue as at the end of a step.

    Checks that all sampled tokens of a rollout have its advantage, and the others 0.
    """
    PPOTrainer._compute_advantage(SimpleNamespace(config=config), batch, metrics={})
    data = tq.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=["advantages", "response_mask"])
    tq.kv_clear(keys=batch.keys, partition_id="train")
    results = []
    for advantages, mask in zip(data["advantages"], data["response_mask"], strict=True):
        [advantage] = set(advantages[mask.bool()].tolist())
        assert not advantages[~mask.bool()].any()
        results.append(advantage)
    return results
