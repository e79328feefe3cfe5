"""Verdicts that are put away: their files and what they took stay, and their units begin anew."""

from __future__ import annotations

from steps.contracts.data import Plan, RunFile, Stage
from steps.contracts.run_spec import RunSpec
from steps.planning.redo import RedoPlan, plan_redo
from steps.planning.units import plan_units
from steps.planning.write import put_away
from steps.reports.figures.caveats import find_caveats
from steps.reports.reading import read_run
from steps.reports.stored_run import Standing, add_usage
from steps.store import Store
from steps.store.runs import record_of
from tests.steps.reports.synthetic import Synthetic

MADE = Synthetic(run_id="r", instances=30, attempts=2)


def plan_again(store: Store, plan: Plan, *words: str) -> tuple[RunSpec, list[dict[str, str]], set[str], RedoPlan]:
    spec = record_of(store, RunFile, "r").spec.model_copy(update={"redo": list(words), "run_id": "r"})
    rows = [
        {"instance_id": one, "repo": "o/r", "image": "i"} for one in dict.fromkeys(u.instance_id for u in plan.units)
    ]
    keys = set(store.keys("runs/r/units/"))
    return spec, rows, keys, plan_redo(spec, rows, store, keys)


def test_units_that_ended_so_begin_anew_and_what_they_took_is_still_counted(store: Store) -> None:
    plan = MADE.write(store)
    before = read_run(store, "r")
    unresolved = {(u.instance_id, u.attempt) for u in before.units if u.standing is Standing.UNRESOLVED}
    assert unresolved
    spec, rows, keys, redo = plan_again(store, plan, "unresolved")
    put_away(store, redo)
    units = plan_units(spec, "r", rows, keys - redo.removed)
    assert keys - redo.removed == {name for name in keys if name in store.keys("runs/r/units/")}
    assert {(u.instance_id, u.attempt) for u in units if u.begins is Stage.SOLVE} >= unresolved
    after = read_run(store, "r")
    redone = [unit for unit in after.units if unit.redone]
    assert {(u.instance_id, u.attempt) for u in redone} == unresolved
    assert {unit.standing for unit in redone} == {Standing.NOT_RUN}
    assert all(unit.failure is None and unit.newest_trajectory for unit in redone)
    assert add_usage([u.usage for u in after.units]) == add_usage([u.usage for u in before.units])
    assert any(f"done again by --redo ({len(unresolved)} unresolved before)" in one for one in find_caveats(after))


def test_the_same_again_puts_nothing_away(store: Store) -> None:
    plan = MADE.write(store)
    *_, redo = plan_again(store, plan, "resolved,Empty-Patch")
    assert redo.files
    put_away(store, redo)
    *_, again = plan_again(store, plan, "resolved,Empty-Patch")
    assert not again.copies
    assert again.notices == ["nothing to redo: no unit with a verdict is resolved, Empty-Patch"]


def test_what_was_killed_while_it_was_put_away_is_put_away_once(store: Store) -> None:
    plan = MADE.write(store)
    *_, redo = plan_again(store, plan, plan.units[0].instance_id)
    store.copy_many(redo.copies)
    store.put_many(redo.files)
    store.delete_many(name for name in redo.removed if not name.endswith("/grade.json"))
    *_, again = plan_again(store, plan, plan.units[0].instance_id)
    put_away(store, again)
    assert again.removed < redo.removed
    kept = {name for name in store.keys("runs/r/units/") if "/tries/redone-" in name}
    assert kept == {place for _, place in redo.copies} | redo.files.keys()


def test_a_run_without_an_agent_keeps_the_patches_that_are_graded_again(store: Store) -> None:
    plan = MADE.write(store)
    file = record_of(store, RunFile, "r")
    given = file.spec.model_copy(update={"agent": file.spec.agent.model_copy(update={"name": "given"})})
    store.put("runs/r/run.json", file.model_copy(update={"spec": given}).to_bytes())
    *_, redo = plan_again(store, plan, "unresolved")
    assert {name.rpartition("/")[2] for name in redo.removed}.isdisjoint({"patch.diff", "solve.json"})
