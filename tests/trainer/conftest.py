from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.trainer.engine import NoTrainerError, RunningTrainer, running_trainer
from tests.trainer.home import trainer_home


@pytest.fixture(scope="package")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTrainer]:
    """A real trainer for the tests of this folder; they skip where none is installed, for that takes minutes."""
    home = trainer_home()
    if not home.is_installed:
        pytest.skip(f"no trainer is installed in {home.folder}: make test-training does it")
    try:
        with running_trainer(home, tmp_path_factory.mktemp("trainer")) as running:
            yield running
    except NoTrainerError as reason:
        pytest.skip(str(reason))
