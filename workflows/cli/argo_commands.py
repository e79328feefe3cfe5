"""The commands of ``swe-argo`` that need a cluster with Argo. What each needs is imported when it is called."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.sandbox_spec import KubernetesSpec
from swe_argo.workflows.cli import spec_sources
from swe_argo.workflows.cli.help_pages import Application
from swe_argo.workflows.terminal.activity import ActivityLine

if TYPE_CHECKING:
    from swe_argo.steps.contracts.train_spec import TrainSpec
    from swe_argo.workflows.argo.engine import Engine
    from swe_argo.workflows.argo.submission import Submission

console = Console()
INTERRUPTED = 130
RunId = Annotated[str, typer.Argument(metavar="RUN")]
Namespace = Annotated[str | None, typer.Option("--namespace", help="Namespace of the chart.")]
KubeContext = Annotated[
    str | None, typer.Option("--kube-context", help="Context of the kubeconfig, by default the current one.")
]
Priority = Annotated[
    int, typer.Option("--priority", help="The larger, the sooner its units begin where several runs wait.")
]
CompareWith = Annotated[str, typer.Option("--compare-with", help="An earlier run, or 'last' of the same spec.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Stay and watch it to its end.")]
Dry = Annotated[bool, typer.Option("--dry-run", help="Check everything, print the Workflow, make nothing.")]
PANEL = "On a cluster, by Argo"


def add(app: typer.Typer, with_spec: Callable[[Callable[..., None]], Callable[..., None]]) -> None:
    """Add the commands. ``with_spec`` gives one every field of RunSpec as an option."""
    app.command(rich_help_panel=PANEL)(with_spec(submit))
    app.command(rich_help_panel=PANEL)(watch)
    app.command(rich_help_panel=PANEL)(stop)
    app.command(rich_help_panel=PANEL)(resume)
    app.command(rich_help_panel=PANEL)(fetch)
    nights = Application(help="The nightly run: on, off, list.", invoke_without_command=True, callback=_nights)
    nights.command("on")(nightly_on)
    nights.command("off")(nightly_off)
    nights.command("list")(nightly_list)
    app.add_typer(nights, name="nightly", rich_help_panel=PANEL)


def submit(
    file: Annotated[Path | None, typer.Argument(metavar="RUN.toml", help="A spec in TOML; flags win over it.")] = None,
    *,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set any field: --set agent.max_steps=60.")
    ] = None,
    priority: Priority = 0,
    compare_with: CompareWith = "",
    watch: Watch = False,
    dry_run: Dry = False,
    flags: dict[str, Any] | None = None,
) -> None:
    """Evaluate patches or an agent on the cluster. The same --run-id again does only what is missing.

    Files that the spec names are brought to the cluster's bucket first. Exit code 0: submitted, with --watch as of run;
    64: the request is wrong, or the cluster lacks something.
    """
    request = spec_sources.read_request(file, flags or {}, set_ or [])
    for note in request.notes:
        sys.stderr.write(f"note: {note}\n")
    spec = request.spec
    with _engine(spec.sandbox.kubernetes.namespace, spec.sandbox.kubernetes.context) as engine:
        _submit(engine, spec, priority, compare_with, stay=watch, dry=dry_run, key=bool(request.env))


def submit_training(
    spec: TrainSpec,
    *,
    priority: int,
    stay: bool,
    dry: bool,
    namespace: str | None,
    kube_context: str | None,
) -> None:
    """Submit a training; ``stay``: watch it to its end. Raises ConfigError, InfraError."""
    from swe_argo.workflows.argo import training

    with _engine(namespace, kube_context) as engine:
        submission = training.submit_training(engine, spec, priority=priority, dry=dry, say=_say)
        _tell(engine, submission, stay=stay, dry=dry)


def submit_validation(runs: Mapping[str, RunSpec], name: str, *, stay: bool, dry: bool) -> int:
    """Submit the two runs of a validation; ``stay``: watch them to their ends, and say what they come to.

    Returns 0, or as ``watch`` the worst of both. Raises ConfigError, InfraError.
    """
    kubernetes = next(iter(runs.values())).sandbox.kubernetes
    with _engine(kubernetes.namespace, kubernetes.context) as engine:
        for spec in runs.values():
            _submit(engine, spec, 0, "", stay=False, dry=dry)
        if not stay or dry:
            return 0
        codes = []
        for spec in runs.values():
            try:
                _watch(engine, spec.run_id or "")
            except typer.Exit as end:
                codes.append(end.exit_code)
            if codes[-1] == INTERRUPTED:
                return INTERRUPTED
        from swe_argo.workflows.argo import chart as charts
        from swe_argo.workflows.argo.bucket import open_bucket
        from swe_argo.workflows.cli.validate import print_validation

        chart = charts.read(engine)
        print_validation(open_bucket(charts.store_address(chart, None), chart), name, console)
        return max(codes)


def resume(
    run_id: RunId,
    *,
    redo: Annotated[
        list[str] | None,
        typer.Option("--redo", metavar="WORD", help="Do these again, too: outcomes, stop reasons, instances."),
    ] = None,
    priority: Priority = 0,
    watch: Watch = False,
    dry_run: Dry = False,
    namespace: Namespace = None,
    kube_context: KubeContext = None,
) -> None:
    """Submit a stored run again, by its own spec: only what is missing is done. It grows by submit, with its id."""
    with _engine(namespace, kube_context) as engine:
        from swe_argo.workflows.argo.stored_runs import spec_of

        with ActivityLine(Console(stderr=True), f"reading the spec of {run_id}"):
            spec = spec_of(engine, run_id).model_copy(update={"redo": redo or []})
        _submit(engine, spec, priority, "", stay=watch, dry=dry_run)


def watch(run_id: RunId, namespace: Namespace = None, kube_context: KubeContext = None) -> None:
    """Show a run, or a training, on the cluster as it goes, to its end. Ctrl-C leaves it running.

    Exit code 0: every unit has a verdict; 3: some have none; 4: it ended as failed (--fail-fast); 64: its spec was
    wrong; 75: it ended without a report.
    """
    with _engine(namespace, kube_context) as engine:
        _watch(engine, run_id)


def stop(
    run_id: RunId,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it has ended and reported.")] = True,
    namespace: Namespace = None,
    kube_context: KubeContext = None,
) -> None:
    """Stop a run, or a training, and all its parts; what is finished is reported, and resume goes on from there."""
    from swe_argo.workflows.argo import stop, training

    with _engine(namespace, kube_context) as engine:
        if training.is_on_cluster(engine, run_id):
            raise typer.Exit(training.stop_training(engine, run_id, console, wait=wait))
        raise typer.Exit(stop.stop(engine, run_id, console, wait=wait))


def fetch(
    run_id: RunId,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that is, or becomes, a store.")],
    store: Annotated[
        str | None, typer.Option("--store", "-o", help="s3://bucket/prefix to fetch from; by default the cluster's.")
    ] = None,
    namespace: Namespace = None,
    kube_context: KubeContext = None,
) -> None:
    """Bring a run from its bucket into a folder; again, only what is missing."""
    from swe_argo.workflows.argo import fetch, stored_runs

    number = fetch.fetch(stored_runs.find_bucket(store, namespace, kube_context), run_id, folder, console)
    console.print(
        f"{run_id}: {number} files brought; see them by: swe-argo show {run_id} --store {folder}",
        highlight=False,
        soft_wrap=True,
    )


def nightly_on(
    schedule: Annotated[
        list[str] | None, typer.Option("--schedule", metavar="CRON", help="When: '0 2 * * *' (repeatable).")
    ] = None,
    timezone: Annotated[str | None, typer.Option("--timezone", help="Whose clock: Europe/Berlin.")] = None,
    namespace: Namespace = None,
    kube_context: KubeContext = None,
) -> None:
    """Start the nightly run at its times."""
    from swe_argo.workflows.argo import nightly

    nightly.check_schedule(schedule or [], timezone)
    with _engine(namespace, kube_context) as engine:
        nightly.switch_on(engine, schedule or [], timezone, console)


def nightly_off(namespace: Namespace = None, kube_context: KubeContext = None) -> None:
    """Start no nightly run any more."""
    from swe_argo.workflows.argo import nightly

    with _engine(namespace, kube_context) as engine:
        nightly.switch_off(engine, console)


def nightly_list(namespace: Namespace = None, kube_context: KubeContext = None) -> None:
    """Say when it comes next, and how the last ones went."""
    from swe_argo.workflows.argo import nightly

    with _engine(namespace, kube_context) as engine:
        nightly.show_nightly(engine, console)


def _nights(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


@contextmanager
def _engine(namespace: str | None, kube_context: str | None) -> Iterator[Engine]:
    from swe_argo.workflows.argo.engines import open_engine

    engine = open_engine(KubernetesSpec(namespace=namespace, context=kube_context))
    try:
        yield engine
    finally:
        engine.close()


def _submit(
    engine: Engine, spec: RunSpec, priority: int, compare_with: str, *, stay: bool, dry: bool, key: bool = False
) -> None:
    from swe_argo.workflows.argo.submission import submit as send

    # On stderr: what a dry run prints is read by programs.
    with ActivityLine(Console(stderr=True), f"asking {engine.where} and the bucket"):
        submission = send(engine, spec, priority=priority, compare_with=compare_with, dry=dry, say=_say, key=key)
    _tell(engine, submission, stay=stay, dry=dry)


def _say(text: str) -> None:
    console.print(text, style="dim", highlight=False, soft_wrap=True)


def _tell(engine: Engine, submission: Submission, *, stay: bool, dry: bool) -> None:
    """What was submitted, and how it is watched and stopped; ``stay``: watch it."""
    for note in submission.notes:
        sys.stderr.write(f"note: {note}\n")
    if dry:
        import yaml

        sys.stdout.write(yaml.safe_dump(submission.workflow, sort_keys=False))
        return
    console.print(
        f"{submission.run}: submitted as workflow {submission.name} in {engine.where}", highlight=False, soft_wrap=True
    )
    if stay:
        _watch(engine, submission.run)
    where = f" --namespace {engine.namespace}"
    ways = f"watch it: swe-argo watch {submission.run}{where}; stop it: swe-argo stop {submission.run}{where}"
    console.print(ways, style="dim", highlight=False, soft_wrap=True)


def _watch(engine: Engine, run_id: str) -> None:
    from swe_argo.workflows.argo import training
    from swe_argo.workflows.argo.watch import watch as follow

    try:
        to_follow = training.watch_training if training.is_on_cluster(engine, run_id) else follow
        code = to_follow(engine, run_id, console)
    except KeyboardInterrupt:
        console.print(
            f"{run_id} goes on; to stop it: swe-argo stop {run_id} --namespace {engine.namespace}",
            highlight=False,
            soft_wrap=True,
        )
        code = INTERRUPTED
    raise typer.Exit(code)
