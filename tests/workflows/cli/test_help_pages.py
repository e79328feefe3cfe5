"""Help of the commands at several widths, by group and complete."""

from __future__ import annotations

import re
from typing import Any

import pytest
from typer.testing import CliRunner

from swe_argo.steps.contracts.spec_fields import fields
from swe_argo.steps.errors import ConfigError
from swe_argo.workflows.cli.help_pages import EVERYDAY, GROUPS
from swe_argo.workflows.cli.main import COMMANDS, app, load_command
from tests.workflows.cli.test_aliases import all_commands

RUN = load_command("run")


def help_text(*words: str, columns: int = 80) -> str:
    """Return the output of a command line at a width."""
    result = CliRunner().invoke(app, words, env={"COLUMNS": str(columns)}, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def flags_in(text: str) -> set[str]:
    """Return the words of a help page that stand where flags do."""
    entries = re.findall(r"^│ (-.*?)(?:  .*)?$", text, re.MULTILINE)
    return {word.strip(",│") for entry in entries for word in entry.split() if word.startswith("--")}


@pytest.mark.parametrize("command", ["run", "submit"])
def test_help_shows_everyday_flags(command: str) -> None:
    text = help_text(command, "--help")
    panel = text[text.index("Everyday flags") : text.index("─ Options")]
    everyday = [line.split() for line in panel.splitlines() if re.match(r"│ -", line)]
    long_names = [next(word for word in words if word.startswith("--")) for words in everyday]
    options = {param.name: param.opts for param in RUN.params}
    assert [name in options[param] for name, param in zip(long_names, EVERYDAY, strict=True)] == [True] * 10
    assert re.findall(r"--help (\w+)", text) == [name for name in GROUPS if name != "verl"]
    assert "--help-all" in text


@pytest.mark.parametrize(("path", "command"), list(all_commands()))
def test_help_all_cuts_no_name(path: tuple[str, ...], command: Any) -> None:
    params = [param for param in command.params if not param.hidden]
    names = {name for param in params for name in (*param.opts, *param.secondary_opts) if name.startswith("--")}
    for columns in (60, 110) if path in (("run",), ("export",)) else (110,):
        assert names <= flags_in(help_text(*path, "--help-all", columns=columns))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_first_paragraph(name: str) -> None:
    """The list of commands has their summaries without importing their modules."""
    first = load_command(name).help.split("\n\n")[0]
    assert " ".join(first.split()) == COMMANDS[name].summary


def test_help_stacks_on_narrow_terminals() -> None:
    assert re.search(r"^│ --k <int> +│\n│ {5}select\.k  Run", help_text("run", "--help", columns=109), re.MULTILINE)
    assert re.search(r"^│ --k <int> +select\.k  Run", help_text("run", "--help", columns=110), re.MULTILINE)


@pytest.mark.parametrize("words", ["--help grading", "--help=grading", "-h grading", "--k 1 --help grading --set"])
def test_help_of_group_shows_its_flags(words: str) -> None:
    grading = [field for field in fields() if field.path[0] == "grading"]
    flags = {part for field in grading for part in field.flag.names[0].split("/")}
    assert flags_in(help_text("run", *words.split())) == flags


def test_help_refuses_unknown_group() -> None:
    with pytest.raises(ConfigError) as refusal:
        help_text("run", "--help", "grader")
    assert str(refusal.value) == (
        "--help: unknown group of flags 'grader': use run, instances, agent, model, sandbox, grading or --help-all"
    )
    assert refusal.value.exit_code == 64


def test_help_stops_at_double_dash() -> None:
    with pytest.raises(ConfigError, match="there is no run '--help'"):
        help_text("show", "--", "--help")
