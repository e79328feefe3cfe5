"""The nightly run of a cluster: switch on, switch off, show."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.workflow_marks import BY_CRON, RUN, Phase
from swe_argo.steps.errors import ConfigError, StepError
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.workflows.argo import chart as charts
from swe_argo.workflows.argo.bucket import open_bucket
from swe_argo.workflows.argo.cron import find_zone, parse_schedule
from swe_argo.workflows.argo.engine import Engine, Plain
from swe_argo.workflows.object_names import NIGHTLY

MAX_RUNS = 10
"""Maximum number of runs in the list."""


def check_schedule(schedules: list[str], timezone: str | None) -> None:
    """Raise ConfigError if a schedule or the time zone is wrong: Argo would accept them and start nothing."""
    for text in schedules:
        parse_schedule(text)
    if timezone:
        find_zone(timezone)


def switch_on(engine: Engine, schedules: list[str], timezone: str | None, console: Console) -> None:
    """Start the nightly run at the given, valid times or at its current ones.

    Raises ConfigError if the chart has not created the nightly run.
    """
    cron = _read_cron(engine)
    change: Plain = {"suspend": False}
    if schedules:
        change["schedules"] = schedules
    if timezone:
        change["timezone"] = timezone
    engine.change_cron(NIGHTLY, change)
    spec = (cron.get("spec") or {}) | change
    console.print(f"nightly on: {_describe_times(spec)}; next {_describe_next_start(spec)}", highlight=False)
    if (cron.get("status") or {}).get("phase") == "Stopped":
        console.print(
            "Argo has stopped it after failures, and it stays stopped: delete it (kubectl delete cronworkflow "
            f"{NIGHTLY} -n {engine.namespace}), then create it again with helm upgrade",
            style="yellow",
            highlight=False,
        )


def switch_off(engine: Engine, console: Console) -> None:
    """Suspend the nightly run; a run in progress continues. Raises ConfigError if there is no nightly run."""
    _read_cron(engine)
    engine.change_cron(NIGHTLY, {"suspend": True})
    console.print("nightly off; a run in progress continues, to stop it: swe-argo stop RUN", highlight=False)


def show_nightly(engine: Engine, console: Console) -> None:
    """Print the next time and the results of the last runs. Raises ConfigError if there is no nightly run."""
    cron = _read_cron(engine)
    spec, status = cron.get("spec") or {}, cron.get("status") or {}
    state = "off" if spec.get("suspend") else f"next {_describe_next_start(spec)}"
    if status.get("phase") == "Stopped":
        state = "stopped by Argo after failures"
    console.print(f"{NIGHTLY} in {engine.where}: {_describe_times(spec)}, {state}", highlight=False, soft_wrap=True)
    for condition in status.get("conditions") or []:
        if condition.get("status") == "True":
            console.print(
                f"{condition.get('type')}: {condition.get('message')}", style="red", highlight=False, soft_wrap=True
            )
    _print_runs(engine, console)


def _print_runs(engine: Engine, console: Console) -> None:
    """Print the last runs, newest first: phases from the cluster, scores from the bucket if it can be reached."""
    phases = {
        header.labels.get(RUN, header.name): header.phase or Phase.PENDING
        for header in engine.list_headers(f"{BY_CRON}={NIGHTLY}")
    }
    scores: dict[str, Summary] = {}
    names = set(phases)
    try:
        chart = charts.read(engine)
        bucket = open_bucket(charts.store_address(chart, None), chart)
        names |= {name for name in bucket.folders("runs/") if name.startswith(f"{NIGHTLY}-")}
        summaries = bucket.get_many(key(Summary, name) for name in sorted(names, reverse=True)[:MAX_RUNS])
        scores = {summary.run_id: summary for summary in map(Summary.from_bytes, summaries.values())}
    except StepError as error:
        console.print(f"cannot read the scores: {error}", style="dim", highlight=False, soft_wrap=True)
    if not names:
        console.print("no nightly run yet")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("run", "phase", "resolved", "without verdict"):
        table.add_column(column, justify="right" if column in ("resolved", "without verdict") else "left")
    for name in sorted(names, reverse=True)[:MAX_RUNS]:
        score = scores.get(name)
        resolved = f"{score.headline.resolved}/{score.headline.total}" if score and score.valid else ""
        missing = str(len(score.without_verdict) or "") if score else ""
        table.add_row(name, phases.get(name, ""), resolved, missing)
    console.print(table)


def _read_cron(engine: Engine) -> Plain:
    """Return the CronWorkflow. Raises ConfigError if it does not exist or may not be read."""
    cron_workflow = engine.read_object("cronworkflows", NIGHTLY)
    if not isinstance(cron_workflow, dict):
        raise ConfigError(
            f"there is no CronWorkflow {NIGHTLY} in {engine.where}: enable it with "
            f"helm upgrade swe-argo charts/swe-argo -n {engine.namespace} --reuse-values --set nightly.enabled=true"
        )
    return cron_workflow


def _describe_times(spec: Plain) -> str:
    return f"{' and '.join(spec.get('schedules') or [])} {spec.get('timezone') or 'of the controller'}"


def _describe_next_start(spec: Plain) -> str:
    """Return the next start in the schedule's own zone, or a message if Argo would not accept the schedule."""
    try:
        now = datetime.now(find_zone(spec.get("timezone") or "Etc/UTC"))
        times = [parse_schedule(time).after(now) for time in spec.get("schedules") or []]
    except ConfigError:
        return "never: its schedule is invalid"
    # Datetimes of one zone compare by local time, so that daylight saving time could change their order.
    upcoming = sorted((time for time in times if time), key=lambda time: time.astimezone(UTC))
    return f"{upcoming[0]:%a %Y-%m-%d %H:%M %Z}" if upcoming else "never"
