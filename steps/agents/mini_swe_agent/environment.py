"""Adapter of a sandbox to mini-swe-agent's Environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from swe_argo.steps.agents.mini_swe_agent.commands import ENVIRONMENT, Commands, Output, submission_in
from swe_argo.steps.agents.mini_swe_agent.library import Library
from swe_argo.steps.agents.mini_swe_agent.turns import Action, Turns


class Environment:
    """The library's protocol Environment. Errors of Sandbox pass through the library's agent unchanged.

    ``time_s``: seconds that the next command may run.
    """

    def __init__(self, library: Library, commands: Commands, turns: Turns, time_s: Callable[[], float]) -> None:
        self.config: dict[str, Any] = {"cwd": commands.workdir, "timeout": int(time_s()), "env": ENVIRONMENT}
        self._library, self._commands, self._turns, self._time_s = library, commands, turns, time_s

    def execute(self, action: Action, cwd: str = "") -> Output:  # noqa: ARG002 - the library's agent passes no folder
        """Run a command in the repository. Raises Submitted if its output contains a submission."""
        output = self._commands.run(action["command"], self._time_s())
        self._turns.add_result(output)
        submitted = submission_in(output)
        if submitted is not None:
            extra = {"exit_status": "Submitted", "submission": submitted}
            raise self._library.exceptions.Submitted({"role": "exit", "content": submitted, "extra": extra})
        return output

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """Return the names available in the library's templates."""
        return {**self.config, **kwargs}

    def serialize(self) -> dict[str, Any]:
        """Return nothing: the library's own trajectory is not written."""
        return {}
