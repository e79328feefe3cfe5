"""The nightly run: an evaluation by cron, compared with the last one of the same spec."""

from __future__ import annotations

from hera.workflows import CronWorkflow
from hera.workflows import models as m

from swe_argo.steps.contracts.workflow_marks import DESCRIPTION, NIGHTLY, TITLE
from swe_argo.workflows import object_names


def nightly() -> CronWorkflow:
    """Return the CronWorkflow ``swe-argo-nightly``, suspended until the chart or ``swe-argo nightly on`` starts it."""
    return CronWorkflow(
        name=object_names.NIGHTLY,
        annotations={
            TITLE: "Nightly evaluation",
            DESCRIPTION: "Runs `swe-argo-evaluate`, and compares with the previous night.",
        },
        labels={"app.kubernetes.io/part-of": "swe-argo"},
        schedules=["0 2 * * *"],
        timezone="Etc/UTC",
        cron_suspend=True,
        concurrency_policy="Forbid",
        starting_deadline_seconds=3600,
        successful_jobs_history_limit=7,
        failed_jobs_history_limit=7,
        stop_strategy=m.StopStrategy(expression="cronworkflow.failed >= 3"),
        workflow_template_ref=m.WorkflowTemplateRef(name=object_names.EVALUATE),
        arguments={"compare-with": "last", "stop-on-canary": "true"},
        workflow_metadata=m.WorkflowMetadata(labels={NIGHTLY: "true"}),
    )
