"""A tokenizer by an id of the hub: its download, the cache, and refusals in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("huggingface_hub", reason="the extra tinker is not installed")

from huggingface_hub import close_session, constants

from swe_argo.steps.errors import StepError
from swe_argo.steps.serving.chat_template import find_tokenizer
from swe_argo.steps.settings import settings
from tests.steps.datasets.hub_server import Hub
from tests.steps.serving.conftest import COMMIT, HUB_ID


class Finder:
    """Finds tokenizers with the given environment."""

    def __init__(self, hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        # The hub's client reads these two when it is imported: patched, they need no process for each test.
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(cache / "token"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.chdir(cache)
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)

    def files(self, name: str = HUB_ID, **env: str) -> list[str]:
        with self._patch.context() as patch:
            for variable, value in env.items():
                patch.setenv(variable, value)
            patch.setattr(constants, "HF_HUB_OFFLINE", "HF_HUB_OFFLINE" in env)
            settings.cache_clear()
            return sorted(file.name for file in find_tokenizer(name).iterdir())

    def refusal(self, name: str = HUB_ID, **env: str) -> tuple[int, str]:
        with pytest.raises(StepError) as failure:
            self.files(name, **env)
        assert "\n" not in failure.value.reason
        return failure.value.exit_code, failure.value.reason


@pytest.fixture
def finder(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Finder:
    finder = Finder(hub, tmp_path, monkeypatch)
    close_session()  # of another test's environment
    return finder


FILES = ["tokenizer.json", "tokenizer_config.json"]


def test_download_excludes_weights(hub: Hub, finder: Finder) -> None:
    assert finder.files() == FILES
    assert not any("safetensors" in request for request in hub.requests)


def test_folder_beats_hub_id(hub: Hub, finder: Finder, tmp_path: Path) -> None:
    (tmp_path / HUB_ID).mkdir(parents=True)
    (tmp_path / HUB_ID / "mine").touch()
    assert (finder.files(), hub.requests) == (["mine"], [])


def test_cache_serves_without_the_hub(hub: Hub, finder: Finder) -> None:
    finder.files()
    assert finder.files(HF_HUB_OFFLINE="1") == FILES
    hub.refuses = "/api/"
    assert finder.files() == FILES


def test_gated_model_needs_a_token(hub: Hub, finder: Finder) -> None:
    hub.repos[HUB_ID].token = "hf_mine"
    way = f"--tokenizer: {HUB_ID} on {hub.endpoint} is gated: request access on its page and set HF_TOKEN"
    assert finder.refusal() == (64, way)
    assert finder.files(HF_TOKEN="hf_mine") == FILES


# fmt: off
MISSING = [
    ("a/b/c", {}, 64, "--tokenizer: a/b/c is neither a folder nor a hub id (owner/name)"),
    ("acme/none", {}, 64, "--tokenizer: there is no folder acme/none, and http://"),
    (HUB_ID, {"HF_HUB_OFFLINE": "1"}, 64, "--tokenizer: HF_HUB_OFFLINE is set, but test/model is not in the cache"),
    (HUB_ID, {"HF_ENDPOINT": "http://127.0.0.1:9"}, 75,
     "the tokenizer test/model cannot be downloaded from http://127.0"),
]
# fmt: on


@pytest.mark.parametrize(("name", "env", "code", "message"), MISSING)
def test_missing_tokenizer_is_one_line(finder: Finder, name: str, env: dict[str, str], code: int, message: str) -> None:
    exit_code, reason = finder.refusal(name, **env)
    assert (exit_code, reason[: len(message)]) == (code, message)


def test_hub_failure_is_temporary(hub: Hub, finder: Finder) -> None:
    hub.refuses = "/resolve/"
    code, reason = finder.refusal()
    assert (code, "403" in reason) == (75, True)


def test_model_without_tokenizer_is_refused(hub: Hub, finder: Finder) -> None:
    del hub.repos[HUB_ID].commits[COMMIT]["tokenizer.json"]
    code, reason = finder.refusal()
    assert code == 64
    assert f"{HUB_ID} on {hub.endpoint} has no tokenizer.json: " in reason
