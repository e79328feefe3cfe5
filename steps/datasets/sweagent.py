"""SWE-agent's files: the submission of a ``.traj``, its model, and whether its end is the agent's."""

from __future__ import annotations

import json
import re
from typing import Any

from swe_argo.steps.contracts.trajectory import StopReason

Row = dict[str, Any]

SUFFIX = ".traj"
PREDICTION_SUFFIX = ".pred"
"""The suffix of a prediction in swebench's form, beside a trajectory. Its patch is null if nothing was submitted."""
OWN = "swe_argo"
"""Key of ``info``, which is free in the format, in files that this project wrote."""
SUBMITTED = "submitted"

_REASONS = {
    "exit_cost": StopReason.COST_LIMIT,
    "exit_context": StopReason.CONTEXT_OVERFLOW,
    "exit_format": StopReason.MALFORMED,
    "exit_total_execution_time": StopReason.TIMEOUT,
    "exit_command_timeout": StopReason.TIMEOUT,
    "exit_forfeit": StopReason.FINISHED,
    "exit_command": StopReason.FINISHED,
}
"""Its exit statuses that are an agent's (sweagent/agent/agents.py); with a patch they stand in ``submitted (...)``."""
_INNER = re.compile(rf"{SUBMITTED} \((.*)\)")


def is_row(row: Row) -> bool:
    """Whether it is one: steps by action and observation, attempts of that kind, or a demonstration's bare history."""
    steps, history = row.get("trajectory"), row.get("history")
    if isinstance(row.get("attempts"), list):
        return True
    if isinstance(steps, list):
        return all(isinstance(step, dict) and "action" in step for step in steps)
    bare = isinstance(history, list) and bool(history) and "instance_id" not in row
    return bare and all(isinstance(each, dict) and {"role", "agent"} <= each.keys() for each in history or ())


def chosen_attempt(row: Row) -> Row:
    """The attempt that counts: its retry loop puts the best one into the row itself, else the last."""
    attempts = row.get("attempts")
    if "trajectory" in row or not isinstance(attempts, list) or not attempts:
        return row
    return attempts[-1] if isinstance(attempts[-1], dict) else row


def as_table(value: object) -> Row:
    """The object, or the one in a JSON text: ``replay_config`` is either."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def model_name(row: Row) -> str | None:
    """The model's name, which older files lack."""
    own = as_table(as_table(row.get("info")).get(OWN)).get("model")
    name = own or as_table(as_table(as_table(row.get("replay_config")).get("agent")).get("model")).get("name")
    return name if isinstance(name, str) and name else None


def submitted_patch(row: Row) -> str | None:
    """What it submitted. Raises ValueError where that is no text.

    Older files have it as a terminal showed it, every line ending in CRLF; lines of a file that end so are a part.
    """
    info = as_table(row.get("info"))
    text = info.get("submission")
    if text is None:
        return "" if OWN in info else None
    if not isinstance(text, str):
        raise ValueError(f"info.submission is {type(text).__name__}, not text or null")  # noqa: TRY004 - of a file
    shown = OWN not in info and "\r\n" in text and not re.search(r"(?<!\r)\n", text.rstrip("\n"))
    return text.replace("\r\n", "\n") if shown else text


def read_end(row: Row) -> tuple[bool, StopReason | None]:
    """Whether its end is an outcome of the agent's, and why it stopped, where there is a word for it.

    A patch that was taken at an end of the infrastructure's is not what the agent would have handed in.
    """
    info = as_table(row.get("info"))
    status, own = info.get("exit_status"), as_table(info.get(OWN)).get("stop_reason")
    if isinstance(own, str) and own in set(StopReason):
        return own != StopReason.INTERRUPTED, StopReason(own)
    if status == SUBMITTED:
        return True, StopReason.FINISHED
    inner = _INNER.fullmatch(status) if isinstance(status, str) else None
    reason = _REASONS.get(inner[1] if inner else str(status))
    return reason is not None, reason
