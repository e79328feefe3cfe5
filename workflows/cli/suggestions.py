"""Suggestions for unknown commands and flags: the closest names, and the names of other tools."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from typer.core import TyperGroup
from typing_extensions import override

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
"""Command of Harbor, Inspect, SWE-agent, swebench, Argo, kubectl or git -> ours."""
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
"""Minimum similarity of a suggestion: 1 for equal letters, plus up to 1 for equal words."""
_MARGIN = 0.15
"""Maximum difference from the best suggestion."""
_FILLERS = frozenset({"", "max", "n", "no", "num", "per"})
"""Parts of flags that say little about a flag's meaning."""


class CommandGroup(TyperGroup):
    """The commands; an unknown one is refused with suggestions."""

    @override
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command. Raises ConfigError if it is unknown."""
        name = args[0]
        if ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        suggestions = closest(name, self.list_commands(ctx), COMMANDS)
        raise ConfigError(f"unknown command {name!r}{_format_suggestions(suggestions)}; swe-argo --help lists them")


def describe_flag_error(error: Any) -> str:
    """Return the message for a refused command line: the library's, or our own for an unknown flag."""
    flag = getattr(error, "option_name", "")
    if not hasattr(error, "possibilities") or not flag.startswith("--"):
        return str(getattr(error, "format_message", error.__str__)())
    params = error.ctx.command.params if error.ctx else ()
    names = [name for param in params for name in (*param.opts, *param.secondary_opts) if name.startswith("--")]
    return f"unknown flag {flag}{_format_suggestions(closest(flag, names, FLAGS))}"


def closest(word: str, names: Iterable[str], synonyms: Mapping[str, str]) -> list[str]:
    """Return the names that an unknown word may mean, the likeliest first; empty if nothing is similar.

    Args:
        word: The unknown word.
        names: The names.
        synonyms: Word of another tool -> name.
    """
    candidates = list(names)
    if synonyms.get(word) in candidates:
        return [synonyms[word]]
    scores = {name: _similarity(word, name) for name in candidates}
    for synonym, name in synonyms.items():
        if name in scores:
            # At equal similarity, our own name precedes one that is only a synonym's.
            scores[name] = max(scores[name], _similarity(word, synonym) - 0.1)
    best = max(scores.values(), default=0.0)
    near = [name for name, score in scores.items() if score >= max(_CLOSE, best - _MARGIN)]
    return sorted(near, key=lambda name: -scores[name])[:3]


def _similarity(first: str, second: str) -> float:
    """Return the share of letters plus the share of words that two names share, with a bonus for swapped letters."""
    swapped = 0.15 if sorted(first) == sorted(second) else 0.0
    letters = difflib.SequenceMatcher(None, first.lower(), second).ratio() + swapped
    parts_a, parts_b = (set(re.split(r"[-_.]+", name.lower())) - _FILLERS for name in (first, second))
    shared = [part for part in parts_a if any(_is_same_word(part, candidate) for candidate in parts_b)]
    return letters + len(shared) / max(len(parts_a), len(parts_b), 1)


def _is_same_word(first: str, second: str) -> bool:
    """Whether two words are equal or one abbreviates the other: temp and temperature."""
    is_prefix = first.startswith(second) or second.startswith(first)
    return first == second or (min(len(first), len(second)) > 2 and is_prefix)


def _format_suggestions(names: list[str]) -> str:
    return f"; did you mean {' or '.join(names)}?" if names else ""
