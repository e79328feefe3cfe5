"""An agent whose model is a list: the commands that mend two of the bundled issues, one well and one not."""

from swe_argo.steps.agents.task import Task
from swe_argo.steps.contracts.trajectory import Result, ResultExtra, StopReason, ToolCall

COMMANDS = {
    "mini__slugkit-2": [
        "grep -n 'len(separator)' slugkit/slug.py",
        "sed -i 's/+ len(separator)$/+ (len(separator) if kept else 0)/' slugkit/slug.py",
    ],
    "mini__slugkit-1": ["false", "echo nothing >> README.md"],
}


class Scripted:
    def act(self, task: Task) -> StopReason:
        for number, command in enumerate(COMMANDS[task.instance.instance_id]):
            call = ToolCall(tool_call_id=str(number), function_name="bash", arguments={"command": command})
            task.recorder.add_agent_turn("Next.", [call])
            ran = task.box.exec(command, timeout_s=60.0, merge=True)
            extra = ResultExtra(exit_code=ran.exit_code)
            result = Result(source_call_id=str(number), content=ran.stdout.decode(), extra=extra)
            task.recorder.add_observations([result])
        return StopReason.FINISHED
