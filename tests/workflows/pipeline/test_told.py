"""What a spec says to the engine and not to a step: it gets there, or is refused because no pod could heed it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import yaml

from swe_argo.steps.contracts.log_levels import LOG_LEVELS
from swe_argo.workflows.parameters import literal
from tests.forked_program import run_program
from tests.workflows.pipeline.rendered import EVALUATE, Change, Made, holds


def plan(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """As its pod would run it, but on this machine."""
    fixed = [
        "--run-id=r",
        f"--store={folder / 'store'}",
        "--backend=local",
        "--k=1",
    ]
    return run_program("swe_argo.steps.plan", [*fixed, f"--out={folder / 'out'}", *words])


def told(folder: Path) -> tuple[str, str]:
    return (folder / "out" / "retries").read_text(), (folder / "out" / "fail_fast").read_text()


def test_retries_and_failing_fast_are_told_and_the_spec_wins_over_parameters(tmp_path: Path) -> None:
    said = ("--retries=4", "--fail-fast=false")
    done = plan(tmp_path, *said)
    assert done.returncode == 0, done.stderr
    assert told(tmp_path) == ("4", "false")
    done = plan(tmp_path, *said, "--spec-text=retries = 0\nfail_fast = true")
    assert done.returncode == 0, done.stderr
    assert told(tmp_path) == ("0", "true")


def test_what_no_pod_could_heed_is_refused_by_its_name(tmp_path: Path) -> None:
    specs = {
        "max_cost_usd": "max_cost_usd = 2.0",
        "give_up_after": "give_up_after = 3",
        "llm.config": '[llm]\nconfig = "llm.a"',
    }
    unknown = [f"--refuse={name}" for name in specs]
    for name, run_spec in specs.items():
        done = plan(tmp_path, *unknown, "--agent=gold", f"--spec-text={run_spec}")
        assert done.returncode == 64, done.stderr
        assert f"{name}: only swe-argo run heeds this, the pipeline does not" in done.stderr
    assert not (tmp_path / "store").exists()
    assert plan(tmp_path, *unknown).returncode == 0


def test_what_the_spec_says_to_the_engine_reaches_it_by_way_of_plan(made: Made) -> None:
    """Wherever it is written: in the parameters, or in ``spec``, which wins."""
    told = ("retries", "fail-fast")

    def faults(made: Made) -> Iterator[str]:
        args = made.template("plan")["container"]["args"]
        files = {each["name"]: each["valueFrom"] for each in made.template("plan")["outputs"]["parameters"]}
        shards = {each["name"]: each["value"] for each in made.task("evaluate", "shards")["arguments"]["parameters"]}
        child = yaml.safe_load(re.sub(r"\{\{=.*?\}\}", "0", made.template("child")["resource"]["manifest"]))
        given = {each["name"]: each["value"] for each in child["spec"]["arguments"]["parameters"]}
        for name in told:
            field = name.replace("-", "_")
            value = literal(f"workflow.parameters['{name}']")
            if f"--{name}={value}" not in args:
                yield f"plan is not asked for {name}"
            if files.get(name, {}).get("path") != f"/out/{field}":
                yield f"plan's {name} is not read: {files.get(name)}"
            if shards.get(name) != f"{{{{tasks.plan.outputs.parameters.{name}}}}}":
                yield f"shards are not told {name}"
            if given.get(name) != f"{{{{inputs.parameters.{name}}}}}":
                yield f"a shard is not handed {name}"
        factor = literal("workflow.parameters['resource-factor']")
        if f"--resource-factor={factor}" not in args:
            yield "plan does not know the factor of the namespace"
        for name in ("solve", "grade"):
            if "resource-factor']" in " ".join(made.template(name)["container"]["args"]):
                yield f"{name} takes the factor twice: its Instance has it"
        for name in ("max_cost_usd", "give_up_after", "llm.config"):
            if f"--refuse={name}" not in args:
                yield f"{name} is taken, and nobody heeds it"

    def args(made: Made) -> list[str]:
        return list(made.template("plan")["container"]["args"])

    def without(word: str) -> Change:
        return lambda m: m.template("plan")["container"].update(args=[each for each in args(m) if word not in each])

    holds(
        made,
        faults,
        without("--retries"),
        without("--fail-fast"),
        without("--resource-factor"),
        without("--refuse"),
        lambda m: m.task("evaluate", "shards")["arguments"]["parameters"].pop(),
        lambda m: m.template("plan")["outputs"]["parameters"].pop(2),
    )


def test_what_steps_print_is_asked_for_once_and_holds_for_all_of_them(made: Made) -> None:
    def faults(made: Made) -> Iterator[str]:
        asked = {each["name"]: each for each in made.spec(EVALUATE)["arguments"]["parameters"]}["log-level"]
        if (asked.get("value"), asked.get("enum")) != ("INFO", list(LOG_LEVELS)):
            yield f"{asked}: what the steps know is something else"
        if 'name: log-level\n        value: "{{workflow.parameters.log-level}}"' not in text(made):
            yield "shards are not told"
        for where, each in made.containers():
            variables = {variable["name"]: variable.get("value") for variable in each["container"]["env"]}
            if variables.get("LOG_LEVEL") != "{{workflow.parameters.log-level}}":
                yield f"{where} is not told"

    def text(made: Made) -> str:
        return str(made.template("child")["resource"]["manifest"])

    holds(
        made,
        faults,
        lambda m: m.spec(EVALUATE)["arguments"]["parameters"][15]["enum"].pop(),
        lambda m: m.template("child")["resource"].update(manifest=text(m).replace("log-level}}", "retries}}")),
        lambda m: m.template("grade")["container"].update(env=[]),
    )


def test_arguments_of_a_submitter_reach_command_lines_as_they_are(made: Made) -> None:
    """Kubernetes would put a variable of the container, such as a key, in the place of ``$(NAME)``."""
    plain = {"run-id", "training", "step", "shard", "retries"}

    def faults(made: Made) -> Iterator[str]:
        for where, each in made.containers():
            for word in each["container"].get("args", []):
                for name in re.findall(r"workflow\.parameters(?:\.|\[')([a-z-]+)", word):
                    if name not in plain and "{{=sprig.replace('$', '$$', " not in word:
                        yield f"{where}: {word}"

    holds(
        made,
        faults,
        lambda m: m.template("plan")["container"]["args"].append("--model={{workflow.parameters.model}}"),
        lambda m: m.template("report")["container"]["args"].append("{{=workflow.parameters['compare-with']}}"),
    )
