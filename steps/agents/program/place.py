"""Files of an agent program in the sandbox: its HOME and start script, made from a recipe and an instruction."""

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

FOLDER = "/var/tmp/swe-argo-agent"  # noqa: S108 - in the sandbox; the same in every try, as requests may contain it
LONGEST_WORD = 120_000
"""Longest instruction in bytes as a command argument; Linux allows 128 KiB per argument (MAX_ARG_STRLEN)."""
_TIMEOUT_S = 120.0
# An agent's shells may be login shells, which reset PATH; the repository's activated environment must survive that.
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
    """Context manager of a program's files, removed on exit. Raises what Sandbox's methods raise.

    ``model``: the agent's name for the model; ``port``: the gateway's port.
    """

    def __init__(self, box: Sandbox, recipe: Recipe, instruction: str, *, model: str, port: int) -> None:
        workdir = box.machine.workdir
        # Without a root of its own, a sandbox owns only the folder around the repository.
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
        with suppress(StepError):  # the next user of the sandbox gets the error
            self._box.exec(f"rm -rf {shlex.quote(self.folder)}", timeout_s=_TIMEOUT_S, cwd="/")

    def _script(self) -> str:
        if len(self._instruction.encode()) > LONGEST_WORD:
            file = self._words["instruction_file"]
            self._words["instruction"] = f"What you are to do stands in the file {file}: read all of it first."
        command = shlex.join(map(self._filled, self._recipe.command))
        home, workdir = shlex.quote(self._words["home"]), shlex.quote(self._workdir)
        return _SCRIPT.format(activate=ACTIVATE, home=home, workdir=workdir, command=command)

    def _filled(self, text: str) -> str:
        """Return the text with placeholders in braces filled in; other braces stay."""
        return re.sub(rf"\{{({'|'.join(WORDS)})\}}", lambda match: self._words[match[1]], text)
