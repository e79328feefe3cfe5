"""An agent that asks one thing: whether to mend the issue, or to leave it. Two answers of a model are two rewards."""

import sys

from swe_argo.steps.agents.limits import Limits
from swe_argo.steps.agents.model_call import ask
from swe_argo.steps.agents.task import Task
from swe_argo.steps.contracts.trajectory import StopReason

PATCHES: dict[str, str] = {}
"""Instance -> what mends it: in the copy that the tests make of this file."""


class OneWord:
    asks_model = True

    def act(self, task: Task) -> StopReason:
        # A model that is scripted answers the same to the same: each attempt asks something else.
        attempt = next(word for word in sys.argv if word.startswith("--attempt="))
        message = {"role": "user", "content": f"{task.instance.instance_id} {attempt}: mend or leave?"}
        task.recorder.add_message("user", message["content"])
        reply = ask(task, Limits(task.spec), [message], tools=None)
        if isinstance(reply, StopReason):
            return reply
        task.recorder.add_agent_turn(reply.text, [], metrics=reply.metrics)
        task.patch = PATCHES.get(task.instance.instance_id, "").encode() if "mend" in reply.text else b""
        return StopReason.FINISHED
