from __future__ import annotations

from pathlib import Path

import pytest

from swe_argo.steps.store import Store, open_store


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return open_store(str(tmp_path / "store"), create=True)
    return open_store(f"s3://{request.getfixturevalue('bucket')}/some/prefix", create=True)
