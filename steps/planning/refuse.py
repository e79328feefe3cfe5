"""Checks of a plan before anything is written; each error is one line with the field and the way out."""

from __future__ import annotations

from swe_argo.steps.agents import run_identity
from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.contracts.ids import FILE_BYTES, MODEL_RULE, is_model_name, model_token
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.planning.growth import is_growth


def refuse_changes(before: RunFile, spec: RunSpec, hashes: dict[str, str]) -> None:
    """Raise ConfigError if run ``before`` had another spec, except for a smaller one."""
    old = run_identity.identity_fields(before.spec) | run_identity.decisive_hashes(before.input_hashes)
    new = run_identity.identity_fields(spec) | run_identity.decisive_hashes(hashes)
    changed = [
        name
        for name in sorted(old | new)
        if old.get(name) != new.get(name) and not is_growth(name, old.get(name), new.get(name))
    ]
    if changed:
        differences = ", ".join(f"{name} was {old.get(name)!r}, now {new.get(name)!r}" for name in changed)
        raise ConfigError(
            f"run {before.run_id!r} exists with another spec ({differences}); use another run id", field="run_id"
        )


def refuse_model(spec: RunSpec, model: str) -> None:
    """Raise ConfigError for an unusable model name: it is part of the name of a file that is written last."""
    numbered = f".attempt-{spec.attempts}" if spec.attempts > 1 else ""
    if not is_model_name(model):
        quoted = f"{model[:60]!a}" + ("..." if len(model) > 60 else "")
        reason = f"{quoted} is no model's name: {MODEL_RULE}"
    elif len(f"{model_token(model)}.{spec.run_id}{numbered}.json".encode()) > FILE_BYTES:
        reason = f"this name and that of the run are more than {FILE_BYTES} bytes together, with what stands round them"
    else:
        return
    mend = "" if spec.agent.model == model else "; --model NAME says another"
    raise ConfigError(reason + mend, field="agent.model")
