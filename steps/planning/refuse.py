"""Checks of a plan before anything is written; each error is one line with the field and a remedy."""

from __future__ import annotations

from swe_argo.steps.agents import run_identity
from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.contracts.ids import FILE_BYTES, MODEL_RULE, is_model_name, model_token
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.planning.growth import is_growth


def refuse_changes(previous: RunFile, spec: RunSpec, hashes: dict[str, str]) -> None:
    """Raise ConfigError if the spec differs from that of run ``previous`` by more than growth."""
    old = run_identity.identity_fields(previous.spec) | run_identity.decisive_hashes(previous.input_hashes)
    new = run_identity.identity_fields(spec) | run_identity.decisive_hashes(hashes)
    differing = [
        name
        for name in sorted(old | new)
        if old.get(name) != new.get(name) and not is_growth(name, old.get(name), new.get(name))
    ]
    if differing:
        differences = ", ".join(f"{name} was {old.get(name)!r}, now {new.get(name)!r}" for name in differing)
        raise ConfigError(
            f"run {previous.run_id!r} exists with another spec ({differences}); use another run id", field="run_id"
        )


def refuse_model(spec: RunSpec, model: str) -> None:
    """Raise ConfigError for a model name that cannot be part of a file name: the last file of a run contains it."""
    attempt_suffix = f".attempt-{spec.attempts}" if spec.attempts > 1 else ""
    if not is_model_name(model):
        quoted = f"{model[:60]!a}" + ("..." if len(model) > 60 else "")
        reason = f"{quoted} is not a model name: {MODEL_RULE}"
    elif len(f"{model_token(model)}.{spec.run_id}{attempt_suffix}.json".encode()) > FILE_BYTES:
        reason = f"model name and run id make a file name of more than {FILE_BYTES} bytes"
    else:
        return
    advice = "" if spec.agent.model == model else "; give another name with --model NAME"
    raise ConfigError(reason + advice, field="agent.model")
