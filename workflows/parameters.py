"""The parameters of the pipeline, for the templates that declare them and for whoever sets them."""

from __future__ import annotations

from dataclasses import dataclass

from swe_argo.steps.contracts.agents import AGENTS
from swe_argo.steps.contracts.backends import BACKENDS
from swe_argo.steps.contracts.chain import PLAN
from swe_argo.steps.contracts.log_levels import LOG_LEVELS
from swe_argo.steps.contracts.run_spec import RunSpec

_FIELDS = {option.name: option.field for option in PLAN.options if option.field}
_DEFAULT = RunSpec()
_BACKENDS = tuple(backend.name for backend in BACKENDS.values() if backend.serves_pods)

TEXT = r"^[^\x00-\x1f\x7f]*$"
"""One line of any text."""
LINES = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$"
"""Text of several lines."""
NAME = r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$"
"""The id of a run or the name of a training, or nothing: it stands in labels, keys, names and manifests."""
WHOLE = r"^-?[0-9]{1,6}$"
NUMBER = r"^([1-9][0-9]{0,5}([.][0-9]{1,6})?|0?[.][0-9]*[1-9][0-9]*)$"


def setting(name: str) -> str:
    """Return the placeholder of a setting of the namespace, which the chart replaces when it is rendered.

    A setting is no argument of a Workflow: whoever may submit one can set every argument, declared or not.
    """
    return f"@{name}@"


def literal(expression: str) -> str:
    """Return what stands for a text in a command line, so that it arrives as it is.

    Kubernetes replaces ``$(NAME)`` in arguments by the container's variables, secrets among them; ``$$`` is a dollar.
    """
    return f"{{{{=sprig.replace('$', '$$', {expression})}}}}"


@dataclass(frozen=True)
class PipelineParameter:
    """An argument of a Workflow. ``choices``: the only values; without them ``pattern`` says which are allowed."""

    name: str
    description: str
    default: str = ""
    choices: tuple[str, ...] = ()
    pattern: str = TEXT
    """A regular expression in the syntax of RE2."""
    limit: str = ""
    """The chart's value below ``limits`` that bounds its amount."""

    @property
    def is_setting(self) -> bool:
        """Whether the chart's values say its default."""
        return self.default == setting(self.name)

    @property
    def field(self) -> str:
        """Of the spec, which it sets by way of plan's flag of the same name; empty where it sets none."""
        return _FIELDS.get(self.name, "")

    @property
    def value(self) -> str:
        """The expression for it in a command line."""
        return literal(f"workflow.parameters['{self.name}']")


RUN_PARAMETERS = (
    PipelineParameter(
        "run-id",
        "Name of the run; by default the Workflow's. The name of an earlier run resumes it.",
        pattern=NAME,
    ),
    PipelineParameter(
        "dataset", "mini, verified, lite, full, multilingual, multimodal, a hub id, s3://...", _DEFAULT.dataset
    ),
    PipelineParameter("split", "Split of the dataset.", _DEFAULT.split),
    PipelineParameter("k", "At most so many instances; all by default."),
    PipelineParameter(
        "agent", "Who works on the issue; by default r2egym with a model, else gold.", choices=("", *AGENTS)
    ),
    PipelineParameter(
        "model", "The model to ask, as openai/NAME; for gold, given and replay only its name in reports."
    ),
    PipelineParameter(
        "base-url",
        "OpenAI-compatible endpoint; by default LLM_BASE_URL of the credentials, else the proxy, else OpenAI's.",
    ),
    PipelineParameter("temperature", "Sampling temperature; 0 by default."),
    PipelineParameter("max-steps", "Actions an instance; by default the agent's own."),
    PipelineParameter("attempts", "Independent attempts an instance (pass@k).", str(_DEFAULT.attempts)),
    PipelineParameter("backend", "Where the sandboxes are.", _BACKENDS[0], _BACKENDS),
    PipelineParameter(
        "spec",
        "The rest of the spec, TOML or JSON as for `swe-argo run`. It wins over the fields above.",
        pattern=LINES,
    ),
    PipelineParameter(
        "fail-fast", "End the run as failed at the first unit that is out of retries.", "false", ("false", "true")
    ),
    PipelineParameter(
        "compare-with", "Compare with an earlier run: its id, or `last` for the last one of the same spec."
    ),
    PipelineParameter(
        "priority",
        "The larger, the sooner its shards begin, where several runs wait.",
        "0",
        pattern=WHOLE,
        limit="priority",
    ),
    PipelineParameter(
        "log-level", "What steps print. DEBUG: a line for each model call and each command, too.", "INFO", LOG_LEVELS
    ),
    PipelineParameter(
        "validated", "Only what a validation.json (s3://...) calls valid; `last`: the store's that knows most of it."
    ),
    PipelineParameter(
        "stop-on-canary",
        "Begin nothing where reference patches, graded first, fail on these machines.",
        "false",
        ("false", "true"),
    ),
    PipelineParameter(
        "resource-factor",
        "Factor on what every sandbox may take; running out doubles it, up to 8.",
        setting("resource-factor"),
        pattern=NUMBER,
        limit="resourceFactor",
    ),
    PipelineParameter(
        "retries",
        "Further tries of a step after a failure of the infrastructure.",
        setting("retries"),
        pattern=r"^[0-9]{1,6}$",
        limit="retries",
    ),
)
"""What a person may say of a run; everything else goes into ``spec``."""

SETTINGS = {
    "image": "Image of the steps.",
    "bucket": "Bucket that keeps the runs.",
    "prefix": "Folder of the bucket, with a slash at its end, or nothing.",
    "region": "Region of the bucket.",
    "s3-endpoint": "An S3 server other than Amazon's.",
    "s3-secret": "Secret with the keys of the bucket.",
    "credentials": "Secret with the keys of models and hubs.",
    "proxy-url": "The namespace's own proxy of a model of Tinker, or nothing.",
    "proxy-secret": "Secret with the key that it wants.",
    "sandbox-credentials": "Secret with the keys of the provider of sandboxes.",
    "hf-endpoint": "Hub that dataset ids are loaded from.",
    "webhook-secret": "Secret with the address that hears of a comparison.",
    "report-url": "Address under which people open what is in the bucket.",
    "step-pod": "Patch of the pods of solve and grade.",
    "control-pod": "Patch of the other pods that run a step.",
    "training-image": "Image of what learns: that of the steps with Tinker's SDK.",
    "training-secret": "Secret with the key of Tinker.",
    "plugins": "Own agents, backends and families that a run may name, with commas between them.",
    "max-retries": "Most retries of a run.",
    "max-resource-factor": "Largest factor of a run on what its sandboxes may take.",
    "waiter-pod": "Patch of the pods that run Argo's own program alone.",
}
"""Settings of the namespace, set by the chart's values: name -> description."""

TRAIN_PARAMETERS = (
    PipelineParameter(
        "training",
        "Name of the training, whatever its spec says. An earlier one of that name goes on.",
        pattern=NAME,
    ),
    PipelineParameter("spec", "The training, TOML or JSON as for `swe-argo train`.", pattern=LINES),
    *(
        PipelineParameter(name, f"{meaning}; by default the spec's.")
        for name, meaning in {
            "steps": "Steps in all; more than before goes on with a training that had ended",
            "groups": "Instances of a step",
            "group-size": "Rollouts of an instance in a step",
            "lr": "Learning rate",
        }.items()
    ),
    *(each for each in RUN_PARAMETERS if each.name in ("priority", "log-level", "resource-factor", "retries")),
)
"""What a person may say of a training; everything else goes into ``spec``."""

FIELD_PARAMETERS = {each.field: each for each in RUN_PARAMETERS if each.field}
"""Field of the spec -> the parameter that sets it."""
