"""Parsing of a task's Dockerfile."""

from __future__ import annotations

import json
import posixpath
import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class Instruction:
    """An instruction: ``word`` in capitals, its arguments, and its options."""

    word: str
    arguments: list[str]
    options: list[str]


def read_instructions(text: str) -> list[Instruction]:
    """Return the instructions of the last stage, FROM first. Raises ValueError for an invalid Dockerfile."""
    lines: list[str] = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if lines and lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1] + " " + line.strip()
        else:
            lines.append(line.strip())
    instructions = [_instruction(line) for line in lines]
    starts = [number for number, instruction in enumerate(instructions) if instruction.word == "FROM"]
    if not starts:
        raise ValueError("it has no FROM")
    return instructions[starts[-1] :]


def working_directory(text: str) -> str | None:
    """Return the working directory of the last stage, absolute; None if it has none or contains variables."""
    folder: str | None = None
    for instruction in read_instructions(text):
        if instruction.word == "WORKDIR" and instruction.arguments:
            folder = posixpath.normpath(posixpath.join(folder or "/", instruction.arguments[0]))
            if "$" in folder:
                return None
    return folder


def _instruction(line: str) -> Instruction:
    """Parse an instruction on one line. Its arguments are a JSON list, or words as in a shell."""
    word, _, text = line.partition(" ")
    text = text.strip()
    if text.startswith("["):
        words = [str(argument) for argument in json.loads(text)]
    else:
        try:
            words = shlex.split(text)
        except ValueError:
            words = text.split()
    options = []
    while words and words[0].startswith("--"):
        options.append(words.pop(0))
    return Instruction(word.upper(), words, options)
