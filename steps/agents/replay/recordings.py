"""Reader of recorded trajectories in any supported format: the actions to replay, by instance."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from swe_argo.steps.agents.formats import Recorded, openhands, preds, read_row
from swe_argo.steps.agents.tools import APPLY, KINDS, Kind
from swe_argo.steps.contracts.data import WORKDIR, Patch
from swe_argo.steps.contracts.recording import Action, Recording
from swe_argo.steps.datasets.names import list_first
from swe_argo.steps.errors import ConfigError

FIELD = "agent.trajectories"
_KNOWN = (
    "trajectory.json of swe-argo, .traj.json of mini-swe-agent, .traj of SWE-agent, .jsonl of R2E-Gym, "
    "output.jsonl of OpenHands, predictions (.jsonl or .json)"
)


@dataclass
class Recordings:
    """Recordings read from files: ``model`` is the first one named, ``notices`` are for the user."""

    model: str | None = None
    by_id: dict[str, Recording] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)


def read(path: str, instances: Mapping[str, str] | Collection[str], known: Collection[str] | None = None) -> Recordings:
    """Return the recordings of ``instances`` in a file or folder. Of several for one, the first good one is used.

    ``instances``: ids, each with its repository's folder, by default /testbed for all. ``known``: all ids of the
    dataset; a recording of any other is an error; without ``known`` others are skipped. Ids are compared
    case-insensitively, as image names have no case. Raises ConfigError: nothing there, a malformed row (named), unknown
    tools, unknown ids (all of them), instances without a recording (all of them).
    """
    if not Path(path).expanduser().exists():
        raise ConfigError(f"there is no file or folder {path}", field=FIELD)
    workdirs = instances if isinstance(instances, Mapping) else dict.fromkeys(instances, WORKDIR)
    pile = _Pile({instance_id.lower(): instance_id for instance_id in workdirs})
    rows = 0
    for place, recorded in _rows(Path(path).expanduser()):
        rows += 1
        pile.add(place, recorded)
    if not rows:
        raise ConfigError(f"{path} holds no trajectory: {_KNOWN}", field=FIELD)
    legal = {instance_id.lower() for instance_id in known or ()}
    unknown = [shown for name, shown in pile.others.items() if known is not None and name not in legal]
    if unknown:
        raise ConfigError(f"{path}: no such instances in the dataset: {list_first(unknown)}", field=FIELD)
    missing = [instance_id for name, instance_id in pile.wanted.items() if name not in pile.found]
    if missing:
        raise ConfigError(
            f"{len(missing)} of {len(pile.wanted)} instances have no recording in {path}: {list_first(missing)}",
            field=FIELD,
        )
    by_id = {}
    for name, instance_id in pile.wanted.items():
        place, recorded = pile.found[name]
        recorded = _with_known_tools(place, recorded)
        pile.patch_alone += recorded.patch_alone
        by_id[instance_id] = _recording(place, openhands.move_repository(recorded, workdirs[instance_id]))
    return Recordings(next(iter(pile.models), None), by_id, list(pile.notices(path)))


def _recording(place: str, recorded: Recorded) -> Recording:
    patch = _patch_of(place, recorded)
    recording = Recording(
        source=f"{recorded.format} {place}",
        scaffold=recorded.scaffold,
        actions=recorded.actions,
        patch=patch,
        stop_reason=recorded.stop_reason,
    )
    try:
        recording.to_bytes()
    except ValueError:  # pydantic serializes fewer levels than json reads
        raise ConfigError(f"{place} is malformed: nested too deeply", field=FIELD) from None
    return recording


@dataclass
class _Pile:
    """Recordings collected so far; ``wanted`` and ``found`` by lower-case id."""

    wanted: dict[str, str]
    found: dict[str, tuple[str, Recorded]] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)
    models: dict[str, None] = field(default_factory=dict)
    again: int = 0
    patch_alone: int = 0

    def add(self, place: str, recorded: Recorded) -> None:
        name = recorded.instance_id.lower()
        if name not in self.wanted:
            self.others[name] = recorded.instance_id or f"(none, in {place})"
            return
        if recorded.model:
            self.models[recorded.model] = None
        self.again += name in self.found
        if name not in self.found or (recorded.good and not self.found[name][1].good):
            self.found[name] = place, recorded

    def notices(self, path: str) -> Iterator[str]:
        if self.again:
            yield f"{self.again} further recordings of the same instances in {path} are not used"
        if self.patch_alone:
            yield f"{self.patch_alone} recordings in {path} used tools that are not here: their patches are applied"
        if self.others:
            yield f"{path} has recordings of {len(self.others)} instances that are not selected"
        if len(self.models) > 1:
            yield f"{path} names several models, the first counts: {list_first(self.models)}"


def _rows(root: Path) -> Iterator[tuple[str, Recorded]]:
    """Yield every trajectory below ``root`` with its position (``file`` or ``file:row``)."""
    for file in _files(root):
        if file.suffix == ".jsonl":
            with file.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    if line.strip():
                        place = f"{file}:{number}"
                        yield place, _read(_value(line, place), place)
        else:
            yield from _whole(file)


def _whole(file: Path) -> Iterator[tuple[str, Recorded]]:
    """Yield a file's only trajectory, or its predictions: a list, or a map by instance id (``preds.json``)."""
    value = _value(file.read_bytes(), str(file))
    if isinstance(value, list):
        yield from ((f"{file}:{number}", _read(row, f"{file}:{number}")) for number, row in enumerate(value, 1))
    elif (
        isinstance(value, dict) and value and all(isinstance(row, dict) and preds.is_row(row) for row in value.values())
    ):
        yield from ((f"{file}:{name}", _read(row, f"{file}:{name}", name)) for name, row in value.items())
    else:
        # SWE-agent and mini-swe-agent 1 name the instance only in the file name.
        yield str(file), _read(value, str(file), file.name.removesuffix(".json").removesuffix(".traj"))


def _files(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    files = [file for end in ("*.traj.json", "*.traj", "trajectory.json") for file in root.rglob(end)]
    # Trajectories of failed tries are in the folder tries.
    files = [file for file in files if "tries" not in file.relative_to(root).parts]
    if not files and (root / "output.jsonl").is_file():
        files = [root / "output.jsonl"]
    if not files and root.name == "trajs":  # a leaderboard bundle: <instance_id>.json
        files = list(root.glob("*.json"))
    return sorted(files or [*root.rglob("*.jsonl")] or root.rglob("preds.json"))


def _value(data: bytes, place: str) -> object:
    try:
        return json.loads(data)
    except RecursionError:
        raise ConfigError(f"{place} is malformed: nested too deeply", field=FIELD) from None
    except ValueError as error:
        raise ConfigError(f"{place} is malformed: {str(error).splitlines()[0]}", field=FIELD) from error


def _read(row: object, place: str, fallback: str = "") -> Recorded:
    try:
        recorded = read_row(row) if isinstance(row, dict) else None
    except ValueError as error:
        raise ConfigError(f"{place} is malformed: {str(error).splitlines()[0]}", field=FIELD) from error
    if recorded is None:
        raise ConfigError(f"{place} is no trajectory: {_KNOWN}", field=FIELD)
    return recorded if recorded.instance_id else replace(recorded, instance_id=fallback)


def _patch_of(place: str, recorded: Recorded) -> str | None:
    """Return the patch; ATIF has no field for it, so it is a file beside the trajectory, also in exports."""
    patch_file = Path(place).with_name(Patch.file)
    if recorded.patch is None and recorded.format == "ATIF" and patch_file.is_file():
        return Patch(patch_file.read_bytes()).text
    return recorded.patch


def _with_known_tools(place: str, recorded: Recorded) -> Recorded:
    """Return the recording, reduced to its patch if it used unknown tools. Raises ConfigError if it has none."""
    anybodys = recorded.format == "ATIF" and recorded.scaffold is None  # several tools are named `edit`
    unknown = dict.fromkeys(
        action.tool
        for action in recorded.actions
        if (kind := KINDS.get(action.tool)) is None
        or (anybodys and kind is Kind.EDIT and "command" not in action.arguments)
    )
    if not unknown:
        return recorded
    patch = _patch_of(place, recorded)
    if patch is None or not anybodys:
        raise ConfigError(
            f"{place} uses tools that cannot be performed again: {list_first(unknown)}; known are {', '.join(KINDS)}",
            field=FIELD,
        )
    actions = [Action(tool=APPLY, arguments={"patch": patch})] if patch else []
    return replace(recorded, actions=actions, patch_alone=True)
