from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.trainer.engine import RunningTrainer, running_trainer
from tests.trainer.home import NoTrainerError, install_trainer, trainer_home


@pytest.fixture(scope="package")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTrainer]:
    """A real trainer for the tests of this folder, installed where it is not; they skip where it cannot be."""
    home = trainer_home()
    try:
        install_trainer(home)
        with running_trainer(home, tmp_path_factory.mktemp("trainer")) as running:
            yield running
    except NoTrainerError as reason:
        pytest.skip(str(reason))
