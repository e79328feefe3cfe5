"""A word that is no command or flag -> what was meant: the closest ones, and what other tools call the same thing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from typer.core import TyperGroup

from swe_argo.steps.errors import ConfigError

COMMANDS = {
    **dict.fromkeys(("ls", "list", "ps", "history", "jobs", "job", "get"), "runs"),
    **dict.fromkeys(("eval", "evaluate", "infer", "start", "exec", "bench", "launch", "benchmark"), "run"),
    **dict.fromkeys(("inspect", "trajectory", "traj", "trace", "logs", "log", "describe", "cat"), "show"),
    **dict.fromkeys(("viewer", "ui", "serve", "dashboard", "open", "web"), "view"),
    **dict.fromkeys(("status", "top", "follow", "wait"), "watch"),
    **dict.fromkeys(("cancel", "kill", "terminate", "abort", "delete"), "stop"),
    **dict.fromkeys(("retry", "resubmit", "continue"), "resume"),
    **dict.fromkeys(("download", "pull", "cp", "sync"), "fetch"),
    **dict.fromkeys(("diff",), "compare"),
    **dict.fromkeys(("grade", "rescore", "score"), "regrade"),
    **dict.fromkeys(("cron", "schedule"), "nightly"),
    **dict.fromkeys(("dataset",), "datasets"),
    **dict.fromkeys(("tasks", "instance"), "instances"),
    **dict.fromkeys(("rm", "prune", "gc", "cleanup"), "clean"),
    **dict.fromkeys(("check", "version", "env"), "doctor"),
    **dict.fromkeys(("convert", "dump"), "export"),
}
"""Words of Harbor, Inspect, SWE-agent, swebench, Argo, kubectl and git -> ours."""
FLAGS = {
    **dict.fromkeys(("--limit", "--n-tasks", "--num-tasks", "--max-instances", "--slice"), "--k"),
    **dict.fromkeys(("--epochs", "--n-attempts", "--num-samples", "--repeats", "--trials"), "--attempts"),
    **dict.fromkeys(("--n-concurrent", "--concurrency", "--max-samples", "--parallel", "--jobs"), "--workers"),
    **dict.fromkeys(("--sandbox", "--env", "--environment", "--environment-class"), "--backend"),
    **dict.fromkeys(("--task", "--task-name", "--task-id", "--sample-id", "--id"), "--instance"),
    **dict.fromkeys(("--log-dir", "--jobs-dir", "--output", "--results", "--output-dir"), "--store"),
    **dict.fromkeys(("--job-name", "--name"), "--run-id"),
    **dict.fromkeys(("--message-limit", "--step-limit", "--max-turns"), "--max-steps"),
    **dict.fromkeys(("--cost-limit",), "--max-cost-per-instance"),
    **dict.fromkeys(("--max-connections",), "--llm-concurrency"),
    **dict.fromkeys(("--preds", "--patches"), "--predictions"),
    **dict.fromkeys(("--again", "--rerun", "--force", "--overwrite"), "--redo"),
}
_CLOSE = 0.6
_BEHIND = 0.15
"""What is so much less close than the closest was not meant."""


class CommandGroup(TyperGroup):
    """The commands; one that there is not is told with what was meant."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Raises ConfigError."""
        word = args[0]
        if ctx.resilient_parsing or word.startswith("-") or self.get_command(ctx, word) is not None:
            return super().resolve_command(ctx, args)
        meant = closest(word, self.list_commands(ctx), COMMANDS)
        raise ConfigError(f"there is no command {word!r}{_ask(meant)}; swe-argo --help lists them")


def describe_flag_error(error: Any) -> str:
    """What a refused command line is told: the library's words, but for a flag that there is not."""
    flag = getattr(error, "option_name", "")
    if not hasattr(error, "possibilities") or not flag.startswith("--"):
        return str(getattr(error, "format_message", error.__str__)())
    command = error.ctx.command if error.ctx else None
    there = [name for each in (command.params if command else ()) for name in (*each.opts, *each.secondary_opts)]
    meant = closest(flag, [name for name in there if name.startswith("--")], FLAGS)
    return f"there is no flag {flag}{_ask(meant)}"


def closest(word: str, there: Iterable[str], others: Mapping[str, str]) -> list[str]:
    """Of what there is, the closest first; before them what another tool calls so. Empty where nothing is close."""
    known = list(there)
    same = [others[word]] if others.get(word) in known else []
    scores = {each: _closeness(word, each) for each in known}
    for other, ours in others.items():
        if ours in scores:
            scores[ours] = max(scores[ours], _closeness(word, other) - 0.1)
    best = max(scores.values(), default=0.0)
    near = [each for each, score in scores.items() if score >= max(_CLOSE, best - _BEHIND)] if not same else []
    return same + sorted(near, key=lambda each: -scores[each])[:3]


def _closeness(word: str, other: str) -> float:
    """Two letters in each other's place are one slip."""
    swapped = 0.15 if sorted(word) == sorted(other) else 0.0
    return difflib.SequenceMatcher(None, word.lower(), other).ratio() + swapped


def _ask(meant: list[str]) -> str:
    return f"; did you mean {' or '.join(meant)}?" if meant else ""
