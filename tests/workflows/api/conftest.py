from __future__ import annotations

from pathlib import Path

import pytest

import swe_argo

AGENT = Path(__file__).with_name("scripted_agent.py")
CHOSEN = ["mini__slugkit-1", "mini__slugkit-2"]


@pytest.fixture(scope="session")
def real_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two real runs over two instances: ``scripted``, by an agent of ours, and ``gold``."""
    store = tmp_path_factory.mktemp("runs") / "store"
    for run_id, agent in (("scripted", f"{AGENT}:Scripted"), ("gold", "gold")):
        fields = {"store": str(store), "run_id": run_id, "agent.name": agent, "select.instance_ids": CHOSEN}
        request = swe_argo.make_request({**fields, "sandbox.allow_host": True, "workers": 2})
        assert swe_argo.start(request).result().complete
    return store
