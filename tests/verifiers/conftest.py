from __future__ import annotations

from pathlib import Path

import pytest

from tests.rollouts.fixtures import isolation, sandboxes  # noqa: F401 - pytest finds them here


@pytest.fixture(scope="session")
def exported(isolation: None, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    """An export of mini for backend local: all but the two rows of ``val`` are trained on."""
    from tests.verifiers.episodes import export_mini

    return export_mini(tmp_path_factory.mktemp("exported") / "out")
