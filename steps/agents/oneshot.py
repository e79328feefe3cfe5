"""Agent with a single model call whose answer contains the patch, in SWE-bench's published prompt styles."""

from __future__ import annotations

import math
import time

from swe_argo.steps.agents import answers, head_files
from swe_argo.steps.agents.limits import Limits
from swe_argo.steps.agents.model_call import ask
from swe_argo.steps.agents.prompts import file_layouts
from swe_argo.steps.agents.task import Task
from swe_argo.steps.agents.tools import APPLY
from swe_argo.steps.contracts.data import FileContext, Patch
from swe_argo.steps.contracts.trajectory import Result, ResultExtra, StopReason, ToolCall
from swe_argo.steps.models.reply import Message, Reply

CHARACTERS_A_TOKEN = 3
"""Conservative estimate for code with line numbers: leaving a file out is better than a refused prompt."""


def act(task: Task) -> StopReason:
    """Show the issue and its files, ask the model once, and store the answer's patch in ``task.patch``, byte for byte.

    The patch is graded like one from a predictions file, whether it applies or not. It is applied in the sandbox only
    to inform readers of the trajectory. Raises the errors of Sandbox and, except NoReplyError, of Model.
    """
    limits = Limits(task.spec, task.clock)
    task.patch = b""
    conversation, left_out = _build_conversation(task)
    for message in conversation:
        extra = {"files_left_out": left_out} if left_out and message is conversation[-1] else {}
        task.recorder.add_message(message["role"], message["content"], **extra)
    reply = ask(task, limits, conversation, None)
    return reply if isinstance(reply, StopReason) else _record_answer(task, reply)


def _record_answer(task: Task, reply: Reply) -> StopReason:
    """Record the answer as a tool call, so that it can be replayed without a model."""
    patch = answers.extract_patch(reply.text)
    task.patch = Patch.from_text(patch).data
    if not answers.is_patch(patch):
        blank = not reply.text.strip()
        problem = "empty" if blank else "no_patch"
        task.recorder.add_agent_turn(
            reply.text, [], reasoning=reply.reasoning, metrics=reply.metrics, malformed=problem
        )
        return StopReason.EMPTY_ANSWER if blank else StopReason.MALFORMED
    call = ToolCall(tool_call_id="answer", function_name=APPLY, arguments={"patch": patch})
    task.recorder.add_agent_turn(reply.text, [call], reasoning=reply.reasoning, metrics=reply.metrics)
    began = time.monotonic()
    output, code = answers.describe_apply(task.box, task.patch)
    extra = ResultExtra(exit_code=code, seconds=round(time.monotonic() - began, 3))
    task.recorder.add_observations([Result(source_call_id=call.tool_call_id, content=output, extra=extra)])
    return StopReason.FINISHED


def _build_conversation(task: Task) -> tuple[list[Message], list[str]]:
    """Return the conversation, and the paths of retrieved files that did not fit.

    Files with text in the row are always included. Others are read at HEAD and included in the row's order while there
    is room, as swebench fills its prompts (create_instance.add_text_inputs, with a tokenizer).
    """
    context = task.instance.context or []
    files = [file for file in context if not file.readme]
    # A row without readmes gets those of the repository's root.
    readmes = _with_text(task, [file for file in context if file.readme]) or _with_text(
        task, [FileContext(path=path) for path in head_files.readme_names(task.box)]
    )
    style = task.spec.prompt_style
    free_characters = (task.spec.max_token_limit or math.inf) * CHARACTERS_A_TOKEN
    free_characters -= len(
        file_layouts.render_prompt(style, task.issue, readmes, [file for file in files if file.text is not None])
    )
    included = []
    for file in _with_text(task, files):
        if file not in files:  # its text was read at HEAD
            if (size := len(file_layouts.render_files([file]))) >= free_characters:
                continue
            free_characters -= size
        included.append(file)
    paths = {file.path for file in included}
    prompt = file_layouts.render_prompt(style, task.issue, readmes, included)
    return file_layouts.prompt_messages(prompt), [file.path for file in files if file.path not in paths]


def _with_text(task: Task, files: list[FileContext]) -> list[FileContext]:
    """Return the files with their contents, except those that HEAD does not have."""
    texts = head_files.read(task.box, [file.path for file in files if file.text is None])
    full = [file if file.text is not None else file.model_copy(update={"text": texts.get(file.path)}) for file in files]
    return [file for file in full if file.text is not None]
