"""What keeps the answered calls of a process: each once, in parts that never change."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.recorded_calls import RecordedCall
from swe_argo.steps.contracts.trajectory import Usage
from swe_argo.steps.errors import InfraError
from swe_argo.steps.store.folder import FolderStore
from swe_argo.steps.store.recorded_calls import CallRecorder


class DoubtfulStore(FolderStore):
    """One that takes what is put, and says at first that it did not."""

    def __init__(self, url: str) -> None:
        super().__init__(url, create=True)
        self.is_asked = threading.Event()
        self.written: list[tuple[str, bytes]] = []

    def put(self, key: str, data: bytes) -> None:
        super().put(key, data)
        self.written.append((key.rpartition("/")[2], data))
        if not self.is_asked.is_set():
            self.is_asked.set()
            raise InfraError(FailureClass.STORAGE, "it broke off")


def test_uncertain_part_is_put_again(tmp_path: Path) -> None:
    store, first, second = DoubtfulStore(str(tmp_path)), answer(1), answer(2)
    keeper = CallRecorder(store, "tries/a/answered_calls/a")
    waiting = threading.Thread(target=keeper.keep, args=([first],))
    waiting.start()
    store.is_asked.wait()
    keeper.keep([second])
    waiting.join()
    keeper.close()
    first_line, second_line = first.to_line(), second.to_line()
    assert store.written == [
        ("a.00000.jsonl", first_line),
        ("a.00000.jsonl", first_line),
        ("a.00001.jsonl", second_line),
    ]


def answer(number: int) -> RecordedCall:
    usage = Usage(calls=number, requests=number)
    values = {"try_name": "a", "attempt": 1, "request": "0" * 64, "usage": usage, "spent": usage, "lost_s": 0.0}
    return RecordedCall.model_validate(values | {"seconds": 1.0, "at": datetime.now(UTC), "text": f"answer {number}"})
