"""Translation of other tools' flags into ours."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from swe_argo.steps.contracts.spec_fields import fields
from swe_argo.steps.errors import ConfigError
from swe_argo.workflows.api.variables import FALSE, TRUE

WITHOUT_EFFECT = {
    "--use_existing": "an existing --run-id resumes that run, a new one starts a new run",
    "--skip_existing": "an existing --run-id resumes that run, a new one starts a new run",
    "--prepull_images": "images are always pulled ahead, within --disk-budget-gb",
}
"""Flags of R2E-Gym that change nothing, because their behaviour is the default."""
WITHOUT_SPEC = ("proxy", "train")
"""Commands without the flags of RunSpec, in which --context and --name have other meanings."""
VERL_FLAGS = {
    "--output_dir": "--out",
    "--output-dir": "--out",
    "--val_ratio": "--val-ratio",
    "--seed": "--split-seed",
    "--sample_limit": "--k",
    "--sample-limit": "--k",
    "--max_turns": "--max-steps",
    "--max-turns": "--max-steps",
    "--prompt_style": "--prompt-style",
}
"""Flags of create_dataset.py, which writes SWE-bench for verl; some have other meanings in other commands."""


def translate_arguments(arguments: list[str], note: Callable[[str], None] = lambda _: None) -> list[str]:
    """Return the arguments with other tools' flags replaced by ours.

    Args:
        arguments: The words after ``swe-argo``.
        note: Called with a message for each flag that changes nothing.

    Raises:
        ConfigError: A flag is not supported.
    """
    if arguments and arguments[0] in WITHOUT_SPEC:
        return arguments
    names, switches = _our_spellings(), _switches()
    if arguments[:1] == ["export"]:
        names |= VERL_FLAGS
    result: list[str] = []
    remaining = deque(arguments)
    while remaining:
        argument = remaining.popleft()
        if argument == "--":
            return [*result, argument, *remaining]
        flag, equals, value = argument.partition("=")
        name = names.get(flag, flag)
        if name in ("--dataset", "-d") and arguments[0] == "export":
            result += [value] if equals else []  # the dataset is an argument of export
        elif name in switches:
            result += _parse_switch(switches[name], name, value, equals, remaining)
        # Our flag needs a value; without one it means 5 %.
        elif flag == "--until-confident" and not equals and (not remaining or not remaining[0][:1].isdigit()):
            result.append(f"{flag}=5%")
        elif flag in WITHOUT_EFFECT:
            if not equals and remaining:
                remaining.popleft()
            note(f"{flag} has no effect: {WITHOUT_EFFECT[flag]}")
        elif flag in ("--max_iterations", "--num_restarts"):
            result += _translate_iterations(flag, value if equals or not remaining else remaining.popleft())
        else:
            result.append(f"{name}{equals}{value}")
    return result


def _our_spellings() -> dict[str, str]:
    """Return every long spelling of a flag, also with underscores for dashes -> our spelling."""
    spellings = {}
    for field in fields():
        first, *aliases = (part for name in field.flag.names for part in name.split("/") if len(part) > 2)
        for name in (first, *aliases):
            target = name if name.startswith("--no-") else first
            spellings[f"--{name[2:].replace('-', '_')}"] = target
            spellings[name] = target
    del spellings["--max_iterations"]  # R2E-Gym's flag, with another meaning than OpenHands'
    return spellings


def _switches() -> dict[str, tuple[str, str]]:
    """Return flag without a value -> its spellings for on and off."""
    pairs = [field.flag.names[0].split("/") for field in fields() if "/" in field.flag.names[0]]
    return {name: (on, off) for on, off in pairs for name in (on, off)}


def _parse_switch(spellings: tuple[str, str], name: str, value: str, equals: str, remaining: deque[str]) -> list[str]:
    """Accept ``--hints true``, as in tools without switches, as well as ``--hints``."""
    text = (value if equals else remaining[0] if remaining else "").lower()
    if text not in TRUE + FALSE:
        if equals:
            raise ConfigError(f"{value!r} is neither true nor false", field=name)
        return [name]
    if not equals:
        remaining.popleft()
    return [spellings[0] if (name == spellings[0]) == (text in TRUE) else spellings[1]]


def _translate_iterations(flag: str, value: str) -> list[str]:
    """Translate R2E-Gym's repeated attempts at an instance: iterative mode; restarts are not supported."""
    if value == "1":
        return []
    if flag == "--max_iterations":
        return ["--iterative", "--iterative-max-attempts", value]
    raise ConfigError("restarts within one sandbox are not supported; --iterative uses a fresh sandbox", field=flag)
