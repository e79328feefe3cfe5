"""Text search in files, with the sandbox's own grep."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from swe_argo.steps.agents.tools.result import ToolResult
from swe_argo.steps.agents.tools.text import readable, without_incomplete_end
from swe_argo.steps.agents.tools.tool import Arguments
from swe_argo.steps.sandbox.protocol import ExecResult

if TYPE_CHECKING:
    from swe_argo.steps.agents.tools.session import Session

MOST_FILES = 100
"""Most matching files to list; beyond, the agent is asked to narrow its search (R2E-Gym)."""

# `-type f` keeps grep from devices and FIFOs; `-c` prints a count per file. Names with line feeds are not supported.
_IN_FOLDER = """cd -- {path} || exit 2
find . -type f -not -path '*/.*' -exec grep -cHF -e {term} -- {{}} + 2>/dev/null | grep -v ':0$' | head -c 1000000"""
_IN_FILE = "grep -n -e {term} -- {path}"


def search(arguments: Arguments, session: Session) -> ToolResult:
    """Search ``search_term`` in ``path``: matching lines of a file, or counts per file of a folder."""
    term, path = str(arguments["search_term"]), str(arguments.get("path") or "").strip() or "."
    if not term:
        return ToolResult("`search_term` is empty: say what to look for.", 1)
    values = {"term": shlex.quote(term), "path": shlex.quote(path)}
    workdir = shlex.quote(session.sandbox.machine.workdir)
    script = (
        f'p={values["path"]}; cd {workdir}; if [ -d "$p" ]; then echo folder\n{_IN_FOLDER.format(**values)}\n'
        f'elif [ -f "$p" ]; then echo file\n{_IN_FILE.format(**values)}\nelse echo nothing; fi'
    )
    result = session.sandbox.exec(script, timeout_s=session.timeout_s, cwd="/", max_output_bytes=4 << 20)
    outcome = _format_matches(term, path, result)
    return replace(outcome, seconds=result.seconds)


def _format_matches(term: str, path: str, result: ExecResult) -> ToolResult:
    """Return the result of the search script, whose first line of output is the kind of the path."""
    kind, _, output = result.stdout.partition(b"\n")
    text = readable(without_incomplete_end(output) if result.truncated else output)
    if result.timed_out:
        return ToolResult(text, None, timed_out=True)
    if kind == b"folder":
        return ToolResult(_format_folder_matches(term, path, text), 0)
    if kind != b"file":
        return ToolResult(f"{path} does not exist, or is no file and no directory.", 1)
    if result.exit_code == 1:  # grep's code for no match
        return ToolResult(f'No matches found for "{term}" in {path}', 0)
    if result.exit_code != 0:
        return ToolResult(f"grep: {readable(result.stderr)}", result.exit_code)
    return ToolResult(f'Matches for "{term}" in {path}:\n{text}', 0, tail="" if result.truncated else None)


def _format_folder_matches(term: str, path: str, text: str) -> str:
    """Return the message for a folder. ``text``: lines ``name:count``."""
    counts = []
    for line in text.splitlines():
        name, _, count = line.rpartition(":")
        if count.isdecimal():
            counts.append((name.removeprefix("./"), int(count)))
    if not counts:
        return f'No matches found for "{term}" in {path}'
    if len(counts) > MOST_FILES:
        return f'More than {MOST_FILES} files match "{term}" in {path} ({len(counts)}). Please narrow your search.'
    root = "" if path == "." else path.rstrip("/") + "/"
    lines = [
        f"{root if root.startswith('/') else './' + root}{name} ({count} matches)" for name, count in sorted(counts)
    ]
    total = sum(count for _, count in counts)
    return "\n".join(
        [f'Found {total} matches for "{term}" in {path}:', *lines, f'End of matches for "{term}" in {path}']
    )
