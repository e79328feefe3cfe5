"""The committed configuration, composed by Hydra."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from swe_argo.verl import FOLDER

verl = pytest.importorskip("verl", reason="needs verl: make test-verl")

from hydra import compose, initialize_config_dir  # noqa: E402
from hydra.errors import ConfigCompositionException  # noqa: E402
from omegaconf import DictConfig, OmegaConf  # noqa: E402

WRITTEN = {"grpo": (), "example/olmo": ("+example=olmo",)}


def composed(*overrides: str) -> DictConfig:
    """Return the config of ``main_ppo --config-path templates/verl --config-name grpo OVERRIDE...``."""
    with initialize_config_dir(str(FOLDER), version_base=None):
        return compose("grpo", list(overrides))


def leaves(document: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def written(name: str) -> dict[str, Any]:
    document = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return dict(leaves({key: value for key, value in document.items() if key not in ("hydra", "defaults")}))


@pytest.fixture(scope="module")
def verl_config() -> DictConfig:
    from importlib.resources import files

    with initialize_config_dir(str(files("verl.trainer") / "config"), version_base=None):
        return compose("ppo_trainer")


@pytest.mark.parametrize("name", WRITTEN)
def test_every_key_exists_in_verl(name: str, verl_config: DictConfig) -> None:
    for path in written(name):
        parent, _, key = path.rpartition(".")
        assert key in list(OmegaConf.select(verl_config, parent) or ()), f"{name}.yaml: verl has no {path}"


@pytest.mark.parametrize("name", WRITTEN)
def test_written_values_reach_verl(name: str) -> None:
    config = composed(*WRITTEN[name])
    for path, value in written(name).items():
        if "${" not in str(value):
            assert OmegaConf.select(config, path) == value


def test_unknown_key_is_refused() -> None:
    with pytest.raises(ConfigCompositionException, match="interaction_config_path"):
        composed("actor_rollout_ref.rollout.multi_turn.interaction_config_path=x.yaml")


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("server", ["vllm", "sglang"])
def test_verl_accepts_the_config(name: str, server: str) -> None:
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    config = composed(*WRITTEN[name], f"actor_rollout_ref.rollout.name={server}")
    assert not need_critic(config)
    assert not need_reference_policy(config)
    validate_config(config, use_reference_policy=False, use_critic=False)
    rollout = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    longest = rollout.prompt_length + rollout.response_length
    assert rollout.max_model_len >= longest
    assert config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu >= longest
    assert rollout.n > 1  # a group of one has no advantage


def test_folders_come_from_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWE_ARGO_VERL", str(FOLDER))
    monkeypatch.setenv("SWE_ARGO_VERL_DATA", "/data/one")
    monkeypatch.setenv("SWE_ARGO_VERL_LOGS", "/logs/one")
    config = composed()
    assert config.data.train_files == "/data/one/train.parquet"
    assert config.data.val_files == "/data/one/val.parquet"
    assert config.trainer.validation_data_dir == "/logs/one/grpo/validation"
    assert config.data.tool_config_path == str(FOLDER / "tools.yaml")
