"""A recipe and an instruction -> what lies in the sandbox for an agent program: its HOME, and what runs it."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from types import TracebackType
from typing import Self

from swe_argo.steps.agents.tools.shell_script import ACTIVATE
from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.recipe import BUNDLE_PLACE, WORDS, Recipe
from swe_argo.steps.errors import InfraError, StepError
from swe_argo.steps.sandbox.protocol import Sandbox

FOLDER = "/var/tmp/swe-argo-agent"  # noqa: S108 - of the sandbox, the same in every try: a request may name it
LONGEST_WORD = 120_000
"""Bytes of an instruction that stands in a command; a word of Linux has at most 128 KiB (MAX_ARG_STRLEN)."""
_TIMEOUT_S = 120.0
# An agent's shells may be login shells, which set PATH anew: what was activated for the repository holds in them, too.
_SCRIPT = """\
{activate}unset BASH_ENV
[ ! -f "$HOME/.gitconfig" ] || [ -f {home}/.gitconfig ] || cp "$HOME/.gitconfig" {home}/.gitconfig
export HOME={home}
for each in .bash_profile .bashrc; do
  [ -f "$HOME/$each" ] || printf 'export PATH=%q\\n' "$PATH" >"$HOME/$each"
done
cd {workdir} && exec {command}
"""


class ProgramPlace:
    """Made when entered, removed when left. Raises what Sandbox's methods do.

    ``model``: the name by which the agent asks for it; ``port``: where the gate will listen.
    """

    def __init__(self, box: Sandbox, recipe: Recipe, instruction: str, *, model: str, port: int) -> None:
        workdir = box.machine.workdir
        # Where a sandbox has no root of its own, the folder around the repository is all that is its own.
        self.folder = FOLDER if box.machine.isolation != "none" else f"{workdir}/../.swe-argo-agent"
        self.home = f"{self.folder}/home"
        self._box, self._recipe, self._instruction, self._workdir = box, recipe, instruction, workdir
        self._words = {
            "bundle": BUNDLE_PLACE,
            "instruction": instruction,
            "instruction_file": f"{self.folder}/instruction.md",
            "model": model,
            "base_url": f"http://127.0.0.1:{port}",
            "home": self.home,
        }
        self.command = f"exec /bin/bash {shlex.quote(f'{self.folder}/run')}"
        self.env = {name: self._filled(value) for name, value in recipe.env.items()}

    def __enter__(self) -> Self:
        home = self._words["home"]
        done = self._box.exec(f"mkdir -p {shlex.quote(home)}", timeout_s=_TIMEOUT_S, cwd="/", merge=True)
        if done.exit_code != 0:
            said = done.stdout[-300:].decode(errors="replace").strip()
            raise InfraError(FailureClass.EXEC, f"no HOME could be made for the agent: {said}")
        for path, text in self._recipe.files.items():
            self._box.write(f"{home}/{path}", self._filled(text).encode())
        self._box.write(self._words["instruction_file"], self._instruction.encode())
        self._box.write(f"{self.folder}/run", self._script().encode())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(StepError):  # whoever uses the machine next is told
            self._box.exec(f"rm -rf {shlex.quote(self.folder)}", timeout_s=_TIMEOUT_S, cwd="/")

    def _script(self) -> str:
        if len(self._instruction.encode()) > LONGEST_WORD:
            file = self._words["instruction_file"]
            self._words["instruction"] = f"What you are to do stands in the file {file}: read all of it first."
        command = shlex.join(map(self._filled, self._recipe.command))
        home, workdir = shlex.quote(self._words["home"]), shlex.quote(self._workdir)
        return _SCRIPT.format(activate=ACTIVATE, home=home, workdir=workdir, command=command)

    def _filled(self, text: str) -> str:
        """The text with what its words in braces stand for; other braces are text."""
        return re.sub(rf"\{{({'|'.join(WORDS)})\}}", lambda match: self._words[match[1]], text)
