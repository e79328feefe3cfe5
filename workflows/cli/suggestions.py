"""A word that is no command or flag -> what was meant: the closest ones, and what other tools call the same thing."""

from __future__ import annotations

import difflib
import re
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
    **dict.fromkeys(("--harness", "--solver", "--scaffolding", "--agent-import-path", "--agent-name"), "--agent"),
    **dict.fromkeys(("--model-name", "--model-id", "--llm"), "--model"),
    **dict.fromkeys(("--api-base", "--api-url", "--endpoint", "--url", "--model-base-url"), "--base-url"),
    **dict.fromkeys(("--benchmark", "--dataset-name", "--tasks", "--path"), "--dataset"),
    **dict.fromkeys(("--limit", "--n-tasks", "--num-tasks", "--max-instances", "--slice"), "--k"),
    **dict.fromkeys(("--epochs", "--n-attempts", "--num-samples", "--repeats", "--trials"), "--attempts"),
    **dict.fromkeys(("--n-concurrent", "--concurrency", "--max-samples", "--parallel"), "--workers"),
    **dict.fromkeys(("--jobs", "--num-threads"), "--workers"),
    **dict.fromkeys(("--max-connections",), "--llm-concurrency"),
    **dict.fromkeys(("--sandbox", "--env", "--environment", "--environment-class"), "--backend"),
    **dict.fromkeys(("--task", "--task-name", "--task-id", "--sample-id", "--id"), "--instance"),
    **dict.fromkeys(("--log-dir", "--jobs-dir", "--output", "--results", "--output-dir"), "--store"),
    **dict.fromkeys(("--job-name", "--name", "--job-id", "--experiment-name", "--resume"), "--run-id"),
    **dict.fromkeys(("--message-limit", "--step-limit", "--max-turns"), "--max-steps"),
    **dict.fromkeys(("--time-limit", "--max-time"), "--agent-timeout"),
    **dict.fromkeys(("--cost-limit",), "--max-cost-per-instance"),
    **dict.fromkeys(("--budget", "--max-budget"), "--max-cost"),
    **dict.fromkeys(("--retry", "--max-retries", "--n-retries"), "--retries"),
    **dict.fromkeys(("--preds", "--patches"), "--predictions"),
    **dict.fromkeys(("--again", "--rerun", "--force", "--overwrite", "--redo-existing"), "--redo"),
}
_CLOSE = 0.6
"""Least similarity of a suggestion: 1 for the same letters, up to 1 more for the same words."""
_BEHIND = 0.15
"""Distance from the best suggestion at which others are left out."""
_EMPTY_WORDS = frozenset({"", "max", "n", "no", "num", "per"})
"""Parts of flags that say little of what a flag is about."""


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
    """Return the names that a word may mean, the likeliest first; empty if nothing is similar.

    Args:
        word: The word that is no name.
        there: The names.
        others: Word of another tool -> name.
    """
    known = list(there)
    if others.get(word) in known:
        return [others[word]]
    scores = {each: _similarity(word, each) for each in known}
    for other, ours in others.items():
        if ours in scores:
            scores[ours] = max(scores[ours], _similarity(word, other) - 0.1)
    best = max(scores.values(), default=0.0)
    near = [each for each, score in scores.items() if score >= max(_CLOSE, best - _BEHIND)]
    return sorted(near, key=lambda each: -scores[each])[:3]


def _similarity(word: str, other: str) -> float:
    """Return how many letters two names share, plus how many of their words; swapped letters count as one slip."""
    swapped = 0.15 if sorted(word) == sorted(other) else 0.0
    letters = difflib.SequenceMatcher(None, word.lower(), other).ratio() + swapped
    ours, theirs = (set(re.split(r"[-_.]+", name.lower())) - _EMPTY_WORDS for name in (word, other))
    shared = [one for one in ours if any(_is_same_word(one, another) for another in theirs)]
    return letters + len(shared) / max(len(ours), len(theirs), 1)


def _is_same_word(one: str, other: str) -> bool:
    """Whether two words are equal or one abbreviates the other: temp and temperature."""
    return one == other or (min(len(one), len(other)) > 2 and (one.startswith(other) or other.startswith(one)))


def _ask(meant: list[str]) -> str:
    return f"; did you mean {' or '.join(meant)}?" if meant else ""
