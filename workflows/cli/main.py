"""``swe-argo``: the command line."""

from __future__ import annotations

import inspect
import shlex
import sys
import traceback
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from swe_argo.steps import proxy
from swe_argo.steps.contracts.spec_fields import SpecField
from swe_argo.steps.errors import EXIT_BUG, EXIT_CONFIG, EXIT_OK, ConfigError, StepError, missing_package
from swe_argo.steps.settings import settings
from swe_argo.workflows.cli import (
    agent_commands,
    ags_commands,
    argo_commands,
    dataset_commands,
    machine_commands,
    programs,
    run_commands,
    spec_sources,
    template_commands,
)
from swe_argo.workflows.cli.aliases import our_names
from swe_argo.workflows.cli.help_pages import HELP, Application
from swe_argo.workflows.cli.printed_spec import spec_toml
from swe_argo.workflows.cli.suggestions import CommandGroup, describe_flag_error
from swe_argo.workflows.local.forked_programs import fork_root

app = Application(
    name="swe-argo",
    cls=CommandGroup,
    help="Evaluate coding agents on SWE-bench and its relatives, with the official verdict.",
    rich_markup_mode="rich",
    context_settings={"help_option_names": [*HELP]},
    pretty_exceptions_enable=False,
)
console = Console()

OF_STEPS = ("run", "validate", "regrade", "report", "train")
"""Commands that begin steps on this machine."""


def _with_spec(command: Callable[..., None], has: Callable[[SpecField], bool] = lambda _: True) -> Callable[..., None]:
    """Give a command every field of RunSpec that it has as an option; it gets them as one dict."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())[:-1]

    def called(**values: Any) -> None:
        mine = {parameter.name: values.pop(parameter.name) for parameter in own}
        command(**mine, flags=values)

    signature = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + spec_sources.parameters(
        has
    )
    called.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in signature}
    called.__name__, called.__doc__ = command.__name__, command.__doc__
    return called


def _version(*, requested: bool) -> None:
    if requested:
        sys.stdout.write(f"swe-argo {metadata.version('swe-argo')}\n")
        raise typer.Exit


@app.callback()
def _program(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=lambda v: _version(requested=v)),
    ] = False,
) -> None: ...


@app.command()
@_with_spec
def run(
    file: Annotated[Path | None, typer.Argument(metavar="RUN.toml", help="A spec in TOML; flags win over it.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set any field: --set agent.max_steps=60.")
    ] = None,
    print_spec: Annotated[
        bool, typer.Option("--print-spec", help="Print all that was chosen as a RUN.toml; run nothing.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Say what would be done, on what, with which first prompt, for how much; make nothing."
        ),
    ] = False,
    flags: dict[str, Any] | None = None,
) -> None:
    """Evaluate patches or an agent on this machine. The same --run-id again does only what is missing.

    Flags win over RUN.toml, and that over variables of the environment. Help names the field beside each flag.

    Exit code 0: all units have a verdict; 3: some have none; 4: --fail-fast; 130: stopped.

    64: the request is wrong; 75: what planning needs did not answer. Then nothing was begun.
    """
    from swe_argo.workflows.cli import session

    request = spec_sources.read_request(file, flags or {}, set_ or [])
    for note in request.notes:
        _note(note)
    if print_spec:
        sys.stdout.write(spec_toml(request))
        return
    if dry_run:
        from swe_argo.workflows.cli.dry_run import print_preview

        print_preview(request.spec, console)
        return
    run_id_flag = [] if (flags or {}).get("run_id") else ["--run-id", str(request.spec.run_id)]
    first = ["swe-argo", *sys.argv[1:], *run_id_flag]
    again = shlex.join(_without_redo(first))
    raise typer.Exit(session.run(request.spec, console, again, request.env, shlex.join(first)))


def _without_redo(words: list[str]) -> list[str]:
    """The command that goes on when it is planned: what was to be done again lacks its verdict then."""
    kept, rest = [], iter(words)
    for word in rest:
        if word == "--redo":
            next(rest, None)
        elif not word.startswith("--redo="):
            kept.append(word)
    return kept


def validate(  # noqa: PLR0917 - every parameter is a flag
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="What --dataset of run takes.")],
    gold_runs: Annotated[
        int | None,
        typer.Option(
            "--gold-runs",
            min=1,
            max=4000,
            help="Times that each reference patch is graded (3; with --until-confident the most, 60).",
        ),
    ] = None,
    until_confident: Annotated[
        str | None,
        typer.Option(
            "--until-confident",
            metavar="P",
            help="Grade the reference patches until a listed test flips in at most P of runs (upper 95 % bound; 5%: 59 "
            "runs without a flip).",
        ),
    ] = None,
    argo: Annotated[bool, typer.Option("--argo", help="On the cluster, by Argo: submit both runs.")] = False,
    watch: argo_commands.Watch = False,
    dry_run: argo_commands.Dry = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set any field: --set sandbox.cpus=2.")
    ] = None,
    flags: dict[str, Any] | None = None,
) -> None:
    """Say which instances of a dataset are fit to measure with on these machines.

    The reference patches are graded several times (run ID.gold) and the untouched repositories once (ID.idle). The same
    --run-id again does only what is missing.

    Exit code 0: every instance is known, fit or not; 3: some are not; otherwise as of run.
    """
    from swe_argo.workflows.cli import validate

    chance = None if until_confident is None else validate.read_chance(until_confident)
    most = gold_runs or (3 if chance is None else 60)
    spec = validate.read_spec(dataset, flags or {}, set_ or [])
    if argo:
        if chance is not None:
            raise ConfigError("not supported on Argo: use --gold-runs 59", field="--until-confident")
        runs = validate.runs_of(spec, most)
        raise typer.Exit(argo_commands.submit_validation(runs, str(spec.run_id), stay=watch, dry=dry_run))
    if watch or dry_run:
        raise ConfigError("--watch and --dry-run are of --argo", field="validate")
    named = [] if (flags or {}).get("run_id") else ["--run-id", str(spec.run_id)]
    again = shlex.join(["swe-argo", *sys.argv[1:], *named])
    raise typer.Exit(validate.validate(spec, most, console, again, chance))


app.command()(_with_spec(validate, spec_sources.is_of_dataset))


@app.command()
def train(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "--config_path",
            metavar="FILE",
            help="A spec: TOML, or flat YAML (.yaml).",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Set any field: --set lr=1e-4, --set run.agent.max_steps=30."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="The training's name; the same again goes on.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Optimiser steps, altogether.")] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            "-o",
            help="Folder or s3://bucket/prefix that holds trainings and their runs.",
            envvar=["SWE_ARGO_STORE", "EVAL_OUTPUT_PATH"],
        ),
    ] = None,
    *,
    argo: Annotated[bool, typer.Option("--argo", help="On the cluster: submit it to the chart's pipeline.")] = False,
    priority: argo_commands.Priority = 0,
    watch: argo_commands.Watch = False,
    dry_run: argo_commands.Dry = False,
    namespace: argo_commands.Namespace = None,
    kube_context: argo_commands.KubeContext = None,
) -> None:
    """Train a model of Tinker by GRPO, on this machine or (--argo) a cluster: runs are rollouts, verdicts rewards.

    Every step is an ordinary run on the weights of the step before, then a step of the optimiser. The same name again
    goes on after the last step that was learnt. Needs TINKER_API_KEY. Fields: docs/training.md.

    Exit code 0: all steps are learnt; 3: a limit of a run ended it; 4: a run that failed did; 130: stopped.

    64: the request is wrong; 75: Tinker, the sandboxes or the store failed.
    """
    from swe_argo.workflows.cli import train

    spec = train.read_spec(config, set_ or [], name, steps, store)
    if argo:
        where = {"namespace": namespace, "kube_context": kube_context}
        argo_commands.submit_training(spec, priority=priority, stay=watch, dry=dry_run, **where)
        return
    train.check_machine(spec)
    again = shlex.join(["swe-argo", *sys.argv[1:]])
    raise typer.Exit(train.train(spec, console, again))


run_commands.add(app, _with_spec)
dataset_commands.add(app, _with_spec)
machine_commands.add(app)
argo_commands.add(app, _with_spec)
template_commands.add(app, _with_spec)
ags_commands.add(app, _with_spec)
agent_commands.add(app)
programs.add_program(
    app, proxy.PROXY, proxy.main, "Serve a model of Tinker as an OpenAI-compatible endpoint that tells its tokens."
)


def main() -> None:
    """Run the command line; every wrong request is one line on stderr and exit 64."""
    if sys.argv[1:2] and sys.argv[1] in OF_STEPS:
        fork_root()
    _find_what_stands_here()
    try:
        settings()
        code = app(our_names(sys.argv[1:], _note) or ["--help"], prog_name="swe-argo", standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    except typer.TyperException as error:  # a word that is no flag, command or number
        sys.exit(_say(describe_flag_error(error).replace("Value error, ", ""), EXIT_CONFIG))
    except BrokenPipeError:  # | head
        sys.exit(EXIT_OK)
    except Exception as raised:  # noqa: BLE001 - our bug, unless it is a StepError or the want of an extra
        failure = missing_package(raised) or raised
        if not isinstance(failure, StepError):
            sys.exit(_say(traceback.format_exc(), EXIT_BUG))
        code = _say(str(failure), failure.exit_code)
        _tell_notes(failure)
        sys.exit(code)
    sys.exit(code if isinstance(code, int) else EXIT_OK)


def _find_what_stands_here() -> None:
    """Import what the current folder holds, as the steps do (begun with ``python -m``), after what is installed."""
    try:
        here = str(Path.cwd())
    except OSError:  # the folder was removed
        return
    if not sys.flags.safe_path and "" not in sys.path and here not in sys.path:
        sys.path.append(here)


def _tell_notes(error: BaseException) -> None:
    """The command that does what is left to do, where there is one."""
    sys.stderr.writelines(f"{note}\n" for note in getattr(error, "__notes__", ()))


def _note(text: str) -> None:
    sys.stderr.write(f"note: {text}\n")


def _say(message: str, code: int) -> int:
    sys.stderr.write(f"{message.rstrip()}\n" if code == EXIT_BUG else f"swe-argo: {' '.join(message.split())}\n")
    return code


if __name__ == "__main__":
    main()
