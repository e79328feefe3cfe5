"""Layout of files in prompts, as published by SWE-bench (swebench.inference.make_datasets.create_instance)."""

from __future__ import annotations

from collections.abc import Sequence

from jinja2 import StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from swe_argo.steps.agents.prompts.templates import prompts_folder
from swe_argo.steps.contracts.data import FileContext
from swe_argo.steps.models.reply import Message


def render_prompt(style: str, issue: str, readmes: Sequence[FileContext], files: Sequence[FileContext]) -> str:
    """Return the prompt of a published style, byte for byte. style-2-edits-only has the wording of style-2."""
    file = prompts_folder() / "oneshot" / f"{style.removesuffix('-edits-only')}.j2"
    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=False)
    values = {"problem_statement": issue, "readmes": render_files(readmes), "code": render_files(files)}
    return environment.from_string(file.read_text("utf-8")).render(values)


def prompt_messages(prompt: str) -> list[Message]:
    """Return swebench's own conversation (run_api.call_chat): line 1 from the system, the rest from a user."""
    first, newline, rest = prompt.partition("\n")
    if not newline:
        return [{"role": "user", "content": prompt}]
    return [{"role": "system", "content": first}, {"role": "user", "content": rest}]


def render_files(files: Sequence[FileContext]) -> str:
    """Return the files in order of path, with line numbers; files with windows show only those, in given order."""
    if any(file.windows is not None for file in files):
        return _render_windows(files)
    text = "".join(_frame_file(file.path, "\n".join(_number_lines(file.text or ""))) for file in _by_path(files))
    return text.strip("\n")


def _by_path(files: Sequence[FileContext]) -> list[FileContext]:
    return sorted({file.path: file for file in files}.values(), key=lambda file: file.path)


def _frame_file(path: str, text: str) -> str:
    return f"[start of {path}]\n{text}\n[end of {path}]\n"


def _number_lines(text: str) -> list[str]:
    return [f"{number} {line}" for number, line in enumerate(text.split("\n"), start=1)]


def _render_windows(files: Sequence[FileContext]) -> str:
    """Return files with windows, with the quirks of the published layout.

    A window that begins above the file counts from its end, so a hunk near the top of a long file shows nothing; blank
    lines around the text so far are lost with each file.
    """
    text = ""
    for file in files:
        lines = _number_lines(file.text or "")
        text += f"[start of {file.path}]\n"
        for first, last in file.windows or ():
            above = "...\n" if first > 1 else ""
            below = "...\n" if last < len(lines) else ""
            text += above + "\n".join(lines[first - 1 : last]) + "\n" + below
        text = text.strip("\n") + f"\n[end of {file.path}]\n"
    return text.strip("\n")
