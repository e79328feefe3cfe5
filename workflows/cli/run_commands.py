"""The commands about runs that a store holds, and about what one left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from swe_argo.steps.errors import EXIT_INCOMPLETE, EXIT_OK, ConfigError
from swe_argo.steps.store import open_store
from swe_argo.workflows.cli import spec_sources
from swe_argo.workflows.cli.completions import offer_runs
from swe_argo.workflows.cli.flags import DEFAULT_STORE, StoreFlag
from swe_argo.workflows.terminal.activity import ActivityLine

console = Console()
Run = Annotated[
    str, typer.Argument(metavar="RUN", help="A run of the store, as runs lists them.", autocompletion=offer_runs)
]


VERL = "verl"
"""Panel of the options that only --format verl has."""


def add(app: typer.Typer, with_spec: Callable[..., Callable[..., None]]) -> None:
    """Add the commands."""
    app.command()(report)
    app.command()(regrade)
    app.command()(compare)
    app.command("grade-log")(grade_log)
    app.command()(runs)
    app.command()(show)
    app.command()(view)
    app.command()(with_spec(export, spec_sources.is_of_rollouts))


def report(
    run_id: Run,
    store: StoreFlag = DEFAULT_STORE,
    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", metavar="FILE", help="Also one zip archive of it, with its units' files, to hand on."),
    ] = None,
) -> None:
    """Write the report of a run, or the page of a training, again, from what its store holds."""
    from swe_argo.steps.reports.bundle import write_bundle
    from swe_argo.steps.reports.text.formatting import size
    from swe_argo.steps.reports.training.write import write_training_page
    from swe_argo.steps.store.trainings import is_training
    from swe_argo.workflows.api.run import Run
    from swe_argo.workflows.terminal.run_end import print_run_end
    from swe_argo.workflows.terminal.training_lines import print_training

    opened = open_store(store)
    if is_training(opened, run_id):
        if bundle is not None:
            raise ConfigError(f"{run_id} is a training: bundle its runs, one by one", field="--bundle")
        print_training(opened, write_training_page(opened, run_id), console)
        return
    stored = Run(opened, run_id)
    with ActivityLine(console, "writing the report") as doing:
        stored.write_report(doing.now)
        if bundle is not None:
            doing.now(f"packing {bundle}")
            packed = size(write_bundle(opened, run_id, bundle))
    summary = print_run_end(stored, console)
    if bundle is not None:
        console.print(
            f"{bundle}: {packed}, opens at {run_id}/index.html", highlight=False, soft_wrap=True, markup=False
        )
    raise typer.Exit(EXIT_OK if summary.complete else EXIT_INCOMPLETE)


def regrade(
    run_id: Run,
    store: StoreFlag = DEFAULT_STORE,
    workers: Annotated[
        int | None, typer.Option("--workers", "-j", min=1, help="Units at a time; by default as in the run.")
    ] = None,
) -> None:
    """Grade a run's patches again in fresh sandboxes, as a run of its own, and compare the verdicts."""
    from swe_argo.workflows.cli import regrade

    raise typer.Exit(regrade.regrade(run_id, store, workers, console))


def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="The run to compare with.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The run to compare.")],
    store: StoreFlag = DEFAULT_STORE,
    store_b: Annotated[
        str | None, typer.Option("--store-b", help="Store of the second run, if it is another one.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what compare.json holds.")] = False,
) -> None:
    """Compare two runs, B minus A: differences in set-up, then instances gained, lost and without a verdict."""
    from swe_argo.workflows.cli.compare import compare as compare_runs

    compare_runs((store, first), (store_b or store, second), console, as_json=as_json)


def grade_log(  # noqa: PLR0917 - every parameter is a flag
    dataset: Annotated[str, typer.Option("--dataset", "-d", help="Rows: a hub id, an alias, a file or a task repo.")],
    instance: Annotated[str | None, typer.Option("--instance", "-i", help="The log's instance.")] = None,
    log: Annotated[Path | None, typer.Option("--log", help="A saved test_output.txt.")] = None,
    patch: Annotated[Path | None, typer.Option("--patch", help="The patch that was graded.")] = None,
    corpus: Annotated[
        Path | None, typer.Option("--corpus", help="A folder of <id>/test_output.txt, all at once.")
    ] = None,
    split: Annotated[str, typer.Option("--split", "-s", help="Split of the dataset.")] = "test",
    integrity: Annotated[
        bool, typer.Option("--integrity", help="Say beside the verdict whether to believe it, and why not.")
    ] = False,
) -> None:
    """Print the official report.json of a saved log; with --corpus one JSON object a line."""
    from swe_argo.steps.contracts.families import SWEBENCH
    from swe_argo.steps.datasets import classic_rows, load
    from swe_argo.steps.families.rows import family_name
    from swe_argo.workflows.cli import grade_log

    loaded = load.load(dataset, split, allow_classic=True)
    if loaded.rows and family_name(loaded.rows[0]) != SWEBENCH:
        raise ConfigError("only logs of SWE-bench are graded so", field="--dataset")
    rows = {row["instance_id"]: classic_rows.grading_row(row) for row in loaded.rows}
    if corpus is not None:
        grade_log.grade_folder(rows, corpus, integrity=integrity)
        return
    if instance is None or log is None:
        raise ConfigError("give --instance ID and --log FILE, or --corpus DIR", field="grade-log")
    if instance not in rows:
        raise ConfigError(f"{dataset} has no instance {instance!r}", field="--instance")
    grade_log.grade_one(rows[instance], log, patch, integrity=integrity)


def runs(  # noqa: PLR0917 - every parameter is a flag
    words: Annotated[
        list[str] | None, typer.Argument(metavar="WORD", help="Only those in whose line each of them stands.")
    ] = None,
    store: StoreFlag = DEFAULT_STORE,
    dataset: Annotated[str, typer.Option("--dataset", "-d", help="Only of a dataset with this in its name.")] = "",
    agent: Annotated[str, typer.Option("--agent", "-a", help="Only of this agent.")] = "",
    model: Annotated[str, typer.Option("--model", "-m", help="Only of a model with this in its name.")] = "",
    since: Annotated[
        str, typer.Option("--since", metavar="DATE", help="Only begun on this day or later: 2026-11 or 2026-11-24.")
    ] = "",
    tags: Annotated[
        list[str] | None, typer.Option("--tag", metavar="WORD", help="Only with this tag (repeatable: with all).")
    ] = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Only those with units that have no verdict, or without a report.")
    ] = False,
    last: Annotated[int | None, typer.Option("--last", "-n", min=1, help="Only the newest so many.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    whole: Annotated[bool, typer.Option("--all", help="The runs of each training's steps, too.")] = False,
) -> None:
    """List the runs of a store, and its trainings; the newest last."""
    from swe_argo.workflows.cli import run_list

    words, tags = words or [], tags or []
    chosen = run_list.RunFilter(tuple(words), dataset, agent, model, since, unfinished, last, tuple(tags))
    opened = open_store(store)
    if as_json:
        run_list.print_runs_json(opened, chosen, whole=whole)
        return
    run_list.print_runs(opened, console, chosen, whole=whole)


def show(  # noqa: PLR0917 - every parameter is a flag
    run_id: Run,
    instance: Annotated[str | None, typer.Argument(metavar="ID", help="One of its instances.")] = None,
    attempt: Annotated[int, typer.Option("--attempt", min=1, help="Which of the instance's attempts.")] = 1,
    store: StoreFlag = DEFAULT_STORE,
    full: Annotated[bool, typer.Option("--full", help="Fold nothing.")] = False,
    no_pager: Annotated[bool, typer.Option("--no-pager", help="Print it all at once, at a terminal, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the file of the instance's trajectory.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Stay with an instance while it is worked on here, turn by turn.")
    ] = False,
) -> None:
    """Show how a run ended, or everything about one of its instances, turn by turn; of a training its last steps."""
    from swe_argo.workflows.cli import show

    if follow:
        from swe_argo.workflows.cli.follow import follow_unit

        if instance is None or as_json:
            raise ConfigError("--follow is of one instance, in words: swe-argo show --follow RUN ID", field="show")
        raise typer.Exit(follow_unit(open_store(store), run_id, instance, attempt, console, full=full))
    how = show.ShowOptions(attempt=attempt, full=full, paged=not no_pager, as_json=as_json)
    show.show(open_store(store), run_id, instance, console, how)


def view(
    store: Annotated[
        str,
        typer.Argument(
            metavar="STORE",
            help="Folder or s3://bucket/prefix that holds all runs.",
            envvar=["SWE_ARGO_STORE", "EVAL_OUTPUT_PATH"],
        ),
    ] = DEFAULT_STORE,
    named: Annotated[
        str | None, typer.Option("--store", "-o", hidden=True, help="The same, as the other commands call it.")
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; elsewhere than here SWE_ARGO_VIEW_TOKEN is needed.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0: any.")] = 7676,
) -> None:
    """Look at all runs of a store in a browser, live while they work. Nothing is written."""
    from swe_argo.workflows.cli import view

    view.view(named or store, host, port, console)


def export(  # noqa: PLR0917 - every parameter is a flag
    name: Annotated[
        str | None,
        typer.Argument(metavar="RUN|DATASET", help="A run of the store; for verl a dataset, too."),
    ] = None,
    form: Annotated[
        Literal["r2egym", "openhands", "sweagent", "mini", "atif", "preds", "samples", "verl"] | None,
        typer.Option(
            "--format",
            "-f",
            help="Whose files to write; preds: patches alone, as swebench reads them; samples: tokens, for training; "
            "verl: prompts to train and to validate with.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="PATH", help="Folder or file; by default exports/RUN/FORMAT, for a dataset ~/data/NAME."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
    store: StoreFlag = DEFAULT_STORE,
    style: Annotated[
        str | None,
        typer.Option(
            "--prompt-style",
            metavar="STYLE",
            rich_help_panel=VERL,
            help="Words of the prompts: tools, style-2, style-3, r2egym, openhands, sweagent, mini-swe-agent.",
        ),
    ] = None,
    val_ratio: Annotated[
        float | None, typer.Option("--val-ratio", rich_help_panel=VERL, help="Share that is held out. [0.2]")
    ] = None,
    split_seed: Annotated[
        int | None, typer.Option("--split-seed", rich_help_panel=VERL, help="Shuffles before the split. [42]")
    ] = None,
    flags: dict[str, Any] | None = None,
) -> None:
    """Write a run's trajectories and patches in the files that other projects' tools read.

    With --format verl: what verl trains on, of a dataset or of a run's instances; the flags behind the panel verl say
    which and on what sandboxes, as of run.
    """
    from swe_argo.workflows.cli import export

    if form is None:
        raise ConfigError("say whose files: --format r2egym, openhands, ... (--help has them)", field="export")
    stated = {name: value for name, value in (flags or {}).items() if value not in (None, [])}
    own: dict[str, Any] = {"style": style, "val_ratio": val_ratio, "seed": split_seed}
    asked = {name: value for name, value in own.items() if value is not None}
    if form == "verl":
        from swe_argo.workflows.verl.prompt_files import VerlOptions

        export.export_verl(store, name, VerlOptions(out=out, force=force, **asked), stated, console)
        return
    if stated or asked or name is None:
        what = "name a run" if name is None else "flags of a dataset are for --format verl alone"
        raise ConfigError(what, field="export")
    export.export(store, name, form, out, console, force=force)
