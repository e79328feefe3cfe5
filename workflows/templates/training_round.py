"""The child Workflow for one step of a training: rollouts, learning, and a measurement if it is due."""

from __future__ import annotations

from hera.workflows import DAG, Container, Parameter, Resource, Task, WorkflowTemplate
from hera.workflows import models as m

from swe_argo.steps.contracts.chain import IS_DUE, LEARN, PAGE, PLAN_ROUND, SPEC
from swe_argo.steps.contracts.record import Place
from swe_argo.steps.contracts.workflow_marks import API_VERSION, KIND, PARENT, ROUND, RUN, TRAINING
from swe_argo.workflows import object_names
from swe_argo.workflows.parameters import setting
from swe_argo.workflows.resources import ROUND_S
from swe_argo.workflows.templates.child import child_workflow_node
from swe_argo.workflows.templates.container import OUT, STORE, program, retries_argument, stored_artifact
from swe_argo.workflows.templates.train import NAME, TRAINER, end_with_children
from swe_argo.workflows.templates.workflow import spec

DESCRIPTION = """\
One step of a training: rollouts by a run of `swe-argo-evaluate`, new weights by `learn`, then a measurement if it is
due. Created by `swe-argo-train`. Finished parts are not repeated."""
STEP = "{{workflow.parameters.step}}"
OF_STEP = f"{NAME}.{STEP}"
"""Name of the run with the step's rollouts: see swe_argo.steps.contracts.training.run_of."""
RUNS = {"rollouts": ("r", OF_STEP), "measurement": ("h", f"{OF_STEP}.held-out")}
"""Template that creates a run -> suffix of its Workflow's name, and the run's name."""


def training_round() -> WorkflowTemplate:
    """Return the WorkflowTemplate ``swe-argo-round``. Parameters: the training, a six-digit step, settings of runs."""
    with WorkflowTemplate(
        **spec(
            object_names.ROUND,
            "Step of a training",
            DESCRIPTION,
            kind="round",
            deadline_s=ROUND_S,
            labels_from={TRAINING: "workflow.parameters.training"},
        ),
        entrypoint="phases",
        on_exit="end",
        arguments=[
            Parameter(name="training", description="The training."),
            Parameter(name="step", description="Number of the step, six digits; 000000 measures the initial weights."),
            Parameter(name="priority", value="0", description="Priority of its runs."),
            Parameter(name="log-level", value="INFO", description="Log level of the steps."),
            retries_argument(),
        ],
        # A terminated training may have left a Workflow of the same step behind: only one of them may learn.
        synchronization=m.Synchronization(mutexes=[m.Mutex(name=f"swe-argo-round-{NAME}")]),
        ttl_strategy=m.TTLStrategy(seconds_after_success=86_400, seconds_after_failure=7 * 86_400),
    ) as template:
        with DAG(name="phases"):
            _tasks()
        end_with_children()
        _plan("plan-rollouts", held_out=False)
        _plan("plan-measurement", held_out=True)
        for name, (end, run) in RUNS.items():
            _make_run(name, end, run)
        _learn()
    return template


def _tasks() -> None:
    """Add the tasks. Before the first step there is nothing to learn, but perhaps something to measure."""
    Task(name="plan", template="plan-rollouts", when=f"{STEP} != 000000")
    Task(name="rollouts", template="rollouts", depends="plan.Succeeded", when=_is_due("plan"), arguments=_spec("plan"))
    Task(name="learn", template="learn", depends="plan.Succeeded && (rollouts.Succeeded || rollouts.Skipped)")
    Task(name="plan-measurement", template="plan-measurement", depends="learn.Succeeded || plan.Skipped")
    Task(
        name="measurement",
        template="measurement",
        depends="plan-measurement.Succeeded",
        when=_is_due("plan-measurement"),
        arguments=_spec("plan-measurement"),
    )


def _is_due(plan: str) -> str:
    return f"{{{{tasks.{plan}.outputs.parameters.{IS_DUE}}}}} == true"


def _spec(plan: str) -> dict[str, str]:
    return {SPEC: f"{{{{tasks.{plan}.outputs.parameters.{SPEC}}}}}"}


def _plan(template: str, *, held_out: bool) -> Container:
    """Return the node that plans the run of the rollouts or, if ``held_out``, of the measurement; it may not be due."""
    values = {"store": STORE, "training": NAME, "step": STEP, "held-out": held_out, "served": True, "out": OUT}
    return program(
        PLAN_ROUND.name,
        PLAN_ROUND.command_line(values),
        template=template,
        account="swe-argo-steps",
        label_run=OF_STEP,
        outputs=[
            Parameter(name=name, value_from=m.ValueFrom(path=f"{OUT}/{name}", default=default))
            for name, default in ((IS_DUE, "false"), (SPEC, ""))
        ],
    )


def _make_run(template: str, end: str, run: str) -> Resource:
    """Return the node for a run, which succeeds even with units without a verdict: learning handles them."""
    manifest = f"""\
apiVersion: {API_VERSION}
kind: Workflow
metadata:
  name: "{{{{workflow.name}}}}-{end}"
  labels:
    {KIND}: evaluate
    {RUN}: "{run}"
    {TRAINING}: "{NAME}"
    {PARENT}: "{{{{workflow.name}}}}"
    {ROUND}: "{STEP}"
spec:
  workflowTemplateRef:
    name: {object_names.EVALUATE}
  arguments:
    parameters:
      - name: run-id
        value: "{run}"
      - name: spec
        value: {{{{=toJson(inputs.parameters.spec)}}}}
      - name: priority
        value: "{{{{workflow.parameters.priority}}}}"
      - name: log-level
        value: "{{{{workflow.parameters.log-level}}}}"
"""
    return child_workflow_node(template, manifest, inputs=[SPEC], account=TRAINER, label_run=OF_STEP)


def _learn() -> Container:
    """Return the learn step, whose page is that of the training so far."""
    folder = Place.TRAINING.value.format(run=NAME)
    return program(
        LEARN.name,
        LEARN.command_line({"store": STORE, "training": NAME, "step": STEP, "out": OUT}),
        account="swe-argo-steps",
        secrets=["training-secret"],
        label_run=OF_STEP,
        outputs=[stored_artifact("report", f"{OUT}/{PAGE}", f"{folder}/{PAGE}", optional=True)],
        image=setting("training-image"),
    )
