"""A run in the store -> its folder ``report/``, whole or not at all."""

from __future__ import annotations

from steps.contracts.data import key
from steps.reports.figures import summarise
from steps.reports.leaderboard import bundle_copies, bundle_files
from steps.reports.official import official_name, official_summary
from steps.reports.page import page
from steps.reports.predictions import predictions
from steps.reports.reading import read_run
from steps.reports.summary import Summary
from steps.reports.units import units_table
from steps.store import Store


def report(store: Store, run_id: str, against: str | None = None) -> Summary:
    """Write ``runs/<run>/report/`` of a run in any state, and return its figures.

    Written anew each time; files of an earlier report that this one lacks are removed. ``summary.json`` comes last:
    where it is, the report is whole. Raises ConfigError for an unknown run, InfraError when the store fails.
    """
    view = read_run(store, run_id)
    summary = summarise(view)
    folder = key(Summary, run_id).removesuffix(Summary.file)
    model = view.run.model
    lines = predictions(view.attempt(1), model)
    files = {
        **{official_name(model, run_id, n): official_summary(view.attempt(n), model) for n in view.attempts},
        "preds.jsonl": lines,
        "units.parquet": units_table(view),
        "report.html": page(view, summary),
        **bundle_files(summary, lines),
    }
    copies = bundle_copies(view)
    old = store.keys(folder)
    kept = {f"{folder}{name}" for name in files} | {destination for _, destination in copies}
    store.delete_many([name for name in old if name not in kept])
    store.copy_many(copies)
    store.put_many({f"{folder}{name}": data for name, data in files.items()})
    store.put(f"{folder}{Summary.file}", summary.to_bytes())
    return summary
