"""What keeps the answered calls of a process: each once, in parts that never change."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.kept_calls import KeptCall
from swe_argo.steps.contracts.trajectory import Usage
from swe_argo.steps.errors import InfraError
from swe_argo.steps.store.folder import FolderStore
from swe_argo.steps.store.kept_calls import CallKeeper


class DoubtfulStore(FolderStore):
    """One that takes what is put, and says at first that it did not."""

    def __init__(self, url: str) -> None:
        super().__init__(url, create=True)
        self.asked = threading.Event()
        self.seen: list[tuple[str, bytes]] = []

    def put(self, key: str, data: bytes) -> None:
        super().put(key, data)
        self.seen.append((key.rpartition("/")[2], data))
        if not self.asked.is_set():
            self.asked.set()
            raise InfraError(FailureClass.STORAGE, "it broke off")


def test_a_part_that_only_seemed_not_to_be_taken_is_put_again_as_it_was(tmp_path: Path) -> None:
    store, first, second = DoubtfulStore(str(tmp_path)), answer(1), answer(2)
    keeper = CallKeeper(store, "tries/a/answered_calls/a")
    waiting = threading.Thread(target=keeper.keep, args=([first],))
    waiting.start()
    store.asked.wait()
    keeper.keep([second])
    waiting.join()
    keeper.close()
    one, other = first.to_line(), second.to_line()
    assert store.seen == [("a.00000.jsonl", one), ("a.00000.jsonl", one), ("a.00001.jsonl", other)]


def answer(number: int) -> KeptCall:
    usage = Usage(calls=number, requests=number)
    values = {"try_name": "a", "attempt": 1, "request": "0" * 64, "usage": usage, "spent": usage, "lost_s": 0.0}
    return KeptCall.model_validate(values | {"seconds": 1.0, "at": datetime.now(UTC), "text": f"answer {number}"})
