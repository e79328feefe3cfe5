"""Other tools' words of a command line in ours."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from swe_argo.steps.contracts.spec_fields import fields
from swe_argo.steps.errors import ConfigError
from swe_argo.workflows.api.variables import FALSE, TRUE

WITHOUT_EFFECT = {
    "--use_existing": "the same --run-id goes on with what is there, another one begins anew",
    "--skip_existing": "the same --run-id goes on with what is there, another one begins anew",
    "--prepull_images": "images are pulled ahead, within --disk-budget-gb",
}
"""Flags of R2E-Gym for what is always so."""
WITHOUT_SPEC = ("proxy", "train")
"""Commands that have flags of their own alone: --context is tokens there, --name is no agent's."""


OF_VERL = {
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
"""Flags of create_dataset.py, which writes SWE-bench for verl; some of them are other things in other commands."""


def our_names(arguments: list[str], note: Callable[[str], None] = lambda _: None) -> list[str]:
    """Arguments with other tools' flags in ours: they are accepted, but kept out of the first column of ``--help``.

    ``note`` is told of each that changes nothing. Raises ConfigError for one that cannot be had.
    """
    if arguments and arguments[0] in WITHOUT_SPEC:
        return arguments
    ours, switches = _ours(), _switches()
    if arguments[:1] == ["export"]:
        ours |= OF_VERL
    words: list[str] = []
    rest = deque(arguments)
    while rest:
        argument = rest.popleft()
        if argument == "--":
            return [*words, argument, *rest]
        flag, equals, value = argument.partition("=")
        name = ours.get(flag, flag)
        if name in ("--dataset", "-d") and arguments[0] == "export":
            words += [value] if equals else []  # there a dataset is no flag's value
        elif name in switches:
            words += _switch(switches[name], name, value, equals, rest)
        elif flag == "--until-confident" and not equals and (not rest or not rest[0][:1].isdigit()):
            words.append(f"{flag}=5%")
        elif flag in WITHOUT_EFFECT:
            if not equals and rest:
                rest.popleft()
            note(f"{flag} changes nothing here: {WITHOUT_EFFECT[flag]}")
        elif flag in ("--max_iterations", "--num_restarts"):
            words += _tries(flag, value if equals or not rest else rest.popleft())
        else:
            words.append(f"{name}{equals}{value}")
    return words


def _ours() -> dict[str, str]:
    """Every long spelling, and each with underscores for dashes, as many tools write it -> ours."""
    ours = {}
    for each in fields():
        first, *others = (part for name in each.flag.names for part in name.split("/") if len(part) > 2)
        for name in (first, *others):
            target = name if name.startswith("--no-") else first
            ours[f"--{name[2:].replace('-', '_')}"] = target
            ours[name] = target
    del ours["--max_iterations"]  # R2E-Gym's, and something else there than in OpenHands
    return ours


def _switches() -> dict[str, tuple[str, str]]:
    """Flags without a value -> how on and off are spelt."""
    pairs = [each.flag.names[0].split("/") for each in fields() if "/" in each.flag.names[0]]
    return {name: (on, off) for on, off in pairs for name in (on, off)}


def _switch(spelt: tuple[str, str], name: str, value: str, equals: str, rest: deque[str]) -> list[str]:
    """``--hints true``, as tools write that have no switches, or ``--hints``."""
    word = (value if equals else rest[0] if rest else "").lower()
    if word not in TRUE + FALSE:
        if equals:
            raise ConfigError(f"{value!r} is neither true nor false", field=name)
        return [name]
    if not equals:
        rest.popleft()
    return [spelt[0] if (name == spelt[0]) == (word in TRUE) else spelt[1]]


def _tries(flag: str, value: str) -> list[str]:
    """R2E-Gym's further attempts at an instance: by its iterative protocol, or by restarts, which do not exist here."""
    if value == "1":
        return []
    if flag == "--max_iterations":
        return ["--iterative", "--iterative-max-attempts", value]
    raise ConfigError("restarts within one sandbox do not exist here; --iterative takes a fresh one", field=flag)
