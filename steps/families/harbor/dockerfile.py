"""Parsing of a task's Dockerfile: the location of its image, and the parts usable on a machine without containers."""

from __future__ import annotations

import json
import posixpath
import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class Instruction:
    """An instruction: ``word`` in capitals, its arguments without options."""

    word: str
    arguments: list[str]
    options: list[str]


def read_instructions(text: str) -> list[Instruction]:
    """Return the instructions of the last stage, FROM first. Raises ValueError if the text is no Dockerfile."""
    lines: list[str] = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if lines and lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1] + " " + line.strip()
        else:
            lines.append(line.strip())
    found = [_instruction(line) for line in lines]
    starts = [number for number, each in enumerate(found) if each.word == "FROM"]
    if not starts:
        raise ValueError("it has no FROM")
    return found[starts[-1] :]


def working_directory(text: str) -> str | None:
    """Return the working directory of the last stage, absolute; None if it has none or contains variables."""
    place: str | None = None
    for each in read_instructions(text):
        if each.word == "WORKDIR" and each.arguments:
            place = posixpath.normpath(posixpath.join(place or "/", each.arguments[0]))
            if "$" in place:
                return None
    return place


def _instruction(line: str) -> Instruction:
    word, _, rest = line.partition(" ")
    rest = rest.strip()
    if rest.startswith("["):
        words = [str(each) for each in json.loads(rest)]
    else:
        try:
            words = shlex.split(rest)
        except ValueError:
            words = rest.split()
    options = []
    while words and words[0].startswith("--"):
        options.append(words.pop(0))
    return Instruction(word.upper(), words, options)
