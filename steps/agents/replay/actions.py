"""Execution of recorded actions, with the tools of their scaffold, of mini-swe-agent or of a similar kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from swe_argo.steps.agents import answers
from swe_argo.steps.agents.formats.mini_swe_agent import raw_result
from swe_argo.steps.agents.mini_swe_agent.commands import Commands, Output, submission_in, submitted_text
from swe_argo.steps.agents.tools import KINDS, Kind, shell_command
from swe_argo.steps.agents.tools.editor import Dialect, RefusedError
from swe_argo.steps.agents.tools.result import ToolObservation, ToolResult
from swe_argo.steps.agents.tools.search import search
from swe_argo.steps.agents.tools.session import Session
from swe_argo.steps.agents.tools.text import cut_middle
from swe_argo.steps.agents.tools.toolsets import NOT_TEXT, TOOLSETS, Toolset, is_sendable, toolset
from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.data import Patch
from swe_argo.steps.contracts.recording import Action
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.protocol import Sandbox

MAX_OBSERVATION = 64 << 10
"""Characters kept of a command's output if no scaffold sets a limit."""
MINI = "mini-swe-agent"


@dataclass(frozen=True)
class PerformedAction:
    """Result of an action. ``other_forms``: other forms in which a recording may have it."""

    observed: ToolObservation
    other_forms: tuple[str, ...] = ()


Perform = Callable[[Action, float], PerformedAction]
"""Function that executes an action within the given seconds. Raises what Sandbox raises, nothing else."""


def executor_for(scaffold: str | None, sandbox: Sandbox, spec: AgentSpec) -> Perform:
    """Return the executor for a recording's actions.

    ``scaffold``: the scaffold whose tools were used; None for tools of other projects.
    """
    session = Session(sandbox, spec.command_timeout_s, spec.max_observation)
    if scaffold is not None and scaffold in TOOLSETS:
        return _ScaffoldTools(toolset(scaffold, spec.scaffold_fidelity), session)
    return _MiniTools(sandbox, spec.max_observation) if scaffold == MINI else _ForeignTools(session)


@dataclass
class _ScaffoldTools:
    """Tools of a bundled scaffold, with its observations."""

    tools: Toolset
    session: Session

    def __call__(self, action: Action, timeout_s: float) -> PerformedAction:
        tool = self.tools.find(action.tool)
        if tool is None:
            return PerformedAction(_not_performed(f"{self.tools.scaffold} has no tool {action.tool!r}"))
        self.session.timeout_s = timeout_s
        return PerformedAction(self.tools.perform(tool, action.arguments, self.session))


class _MiniTools:
    """A new bash per command, with observations by mini-swe-agent's templates if that library is installed."""

    def __init__(self, sandbox: Sandbox, max_observation: int | None) -> None:
        self.commands = Commands(sandbox)
        self.max_observation = max_observation

    def __call__(self, action: Action, timeout_s: float) -> PerformedAction:
        if not shell_command(action.arguments):
            return PerformedAction(_not_performed(f"{action.tool} has no command"))
        result = self.commands.run(shell_command(action.arguments), timeout_s)
        output, extra = result["output"], result["extra"]
        observation_text = self._format_observation(result)
        submits = submission_in(result) is not None
        observation = ToolObservation(
            text=output[:MAX_OBSERVATION] if submits else observation_text,
            exit_code=extra["exit_code"],
            timed_out=extra["timed_out"],
            seconds=extra["seconds"],
            cut=output not in observation_text,
            ends=submits,
        )
        return PerformedAction(observation, (raw_result(output, result["returncode"]), output, observation_text))

    @cached_property
    def _format_observation(self) -> Callable[[Output], str]:
        """Return the library's function for observations, or if it is not installed our simple form."""
        from swe_argo.steps.agents.mini_swe_agent import library

        try:
            lib = library.load()
        except ConfigError:
            return lambda result: raw_result(result["output"], result["returncode"])
        config = library.swebench_config(lib, fn_calling=True, max_observation=self.max_observation)
        show, template = lib.text.format_observation_messages, config["model"]["observation_template"]
        return lambda result: str(show([result], observation_template=template)[0]["content"])


@dataclass
class _ForeignTools:
    """Tools of other projects, mapped by name to a kind of action; the observations are ours."""

    session: Session

    def __call__(self, action: Action, timeout_s: float) -> PerformedAction:
        """Execute an action by the kind of its tool. One that cannot be executed gets a note as its observation."""
        self.session.timeout_s = timeout_s
        kind, arguments = KINDS.get(action.tool), action.arguments
        # Names of arguments that cannot be sent to a sandbox.
        unsendable = [name for name in ("path", "search_term") if not is_sendable(name, arguments.get(name))]
        match kind:
            case Kind.SHELL | Kind.SESSION if not shell_command(arguments):
                return PerformedAction(_not_performed(f"{action.tool} has no command"))
            case Kind.EDIT | Kind.SEARCH if unsendable:
                return PerformedAction(_not_performed(f"{action.tool}: `{unsendable[0]}` {NOT_TEXT}"))
            case Kind.SHELL | Kind.SESSION:
                shell = self.session.shell(persistent=kind is Kind.SESSION)
                outcome = shell.run(_plain(shell_command(arguments)), timeout_s=timeout_s)
            case Kind.EDIT:
                outcome = self._edit(arguments)
            case Kind.SEARCH:
                outcome = search({"search_term": ""} | arguments, self.session)
            case Kind.PATCH:
                patch = Patch.from_text(str(arguments.get("patch") or "")).data
                outcome = ToolResult(*answers.describe_apply(self.session.sandbox, patch))
            case Kind.NOTHING | Kind.END:
                return PerformedAction(ToolObservation("", ends=kind is Kind.END))
            case _:  # recordings are checked when read; actions from elsewhere get a note
                return PerformedAction(_not_performed(f"tool {action.tool!r} is unknown"))
        cut = cut_middle(outcome.text, outcome.tail, self.session.max_observation or MAX_OBSERVATION)
        text = cut.text + (f"\n{outcome.note}" if outcome.note else "")
        submits = kind is Kind.SHELL and submitted_text(text) is not None  # mini-swe-agent submits by a command
        return PerformedAction(
            ToolObservation(text, outcome.exit_code, outcome.timed_out, round(outcome.seconds, 3), cut.cut, submits)
        )

    def _edit(self, arguments: dict[str, Any]) -> ToolResult:
        """Execute an editor command; arguments of None count as missing."""
        present = {name: value for name, value in arguments.items() if value is not None}
        try:
            return ToolResult(self.session.editor(Dialect()).execute(present), 0)
        except RefusedError as refusal:
            return ToolResult(str(refusal), 1)


def _plain(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def _not_performed(reason: str) -> ToolObservation:
    return ToolObservation(f"{reason}: not performed", 1)
