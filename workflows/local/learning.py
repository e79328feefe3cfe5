"""Numbers of steps on standard input -> what each came to, a JSON object a line: the child process that learns.

It ends when its standard input does, whatever it does then: a step that is killed is begun again from the checkpoint
before it.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from typing import Any

from steps.errors import EXIT_BUG, ConfigError, StepError
from steps.sandbox.command_log import set_up_logging
from steps.settings import settings
from steps.store import open_store
from steps.training.checkpoints import training_of


def main() -> None:
    """``python -m workflows.local.learning STORE TRAINING``."""
    store_url, name = sys.argv[1:]
    set_up_logging()
    steps: queue.SimpleQueue[int] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(steps,), daemon=True).start()
    learner: Any = None
    while True:
        step = steps.get()
        try:
            learner = learner or _open(store_url, name)
            learner.learn(step)
            answer: dict[str, Any] = {"step": step}
        except StepError as error:
            answer = {"reason": error.reason, "exit_code": error.exit_code}
        except Exception as error:  # noqa: BLE001 - told to whoever asked, who says it is our bug
            answer = {"reason": f"{type(error).__name__}: {error}", "exit_code": EXIT_BUG}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _open(store_url: str, name: str) -> Any:
    from steps.training.learner import Learner

    ours, store = settings(), open_store(store_url)
    if ours.tinker_api_key is None:
        raise ConfigError("is not set", field="TINKER_API_KEY")
    key = ours.tinker_api_key.get_secret_value()
    return Learner(store, training_of(store, name), api_key=key, base_url=ours.tinker_base_url)


def _read(steps: queue.SimpleQueue[int]) -> None:
    for line in sys.stdin:
        steps.put(int(line))
    os._exit(0)  # whoever asked is gone: the SDK's threads would keep this process


if __name__ == "__main__":
    main()
