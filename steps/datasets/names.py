"""Names of datasets, with the spellings of other tools and guides, and suggestions for misspellings."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from itertools import islice

MINI = "mini"
BUNDLED = {
    MINI: "swebench",
    "mini-r2e": "r2e",
    "mini-swesmith": "swesmith",
    "mini-swegym": "swegym",
    "mini-rebench": "rebench",
}
"""This project's datasets -> their task families."""

FULL = "SWE-bench/SWE-bench"
VERIFIED = "SWE-bench/SWE-bench_Verified"
LITE = "SWE-bench/SWE-bench_Lite"
MULTILINGUAL = "SWE-bench/SWE-bench_Multilingual"
MULTIMODAL = "SWE-bench/SWE-bench_Multimodal"

# swebench/cli/_datasets.py, swebench/harness/utils.py load_swebench_dataset, mini-swe-agent's DATASET_MAPPING, and the
# ids of the datasets before they moved to the organisation SWE-bench.
_ALIASES = {
    FULL: ("full", "swe-bench", "swebench", "swe_bench", "princeton-nlp/SWE-bench"),
    VERIFIED: ("verified", "princeton-nlp/SWE-bench_Verified"),
    LITE: (
        "lite",
        "swe-bench-lite",
        "swebench-lite",
        "swe_bench_lite",
        "swe-bench_lite",
        "princeton-nlp/SWE-bench_Lite",
    ),
    MULTILINGUAL: ("multilingual", "swe-bench/SWE-Bench_Multilingual"),
    MULTIMODAL: ("multimodal", "princeton-nlp/SWE-bench_Multimodal"),
    "SWE-bench/SWE-smith": ("smith",),
    "SWE-bench/SWE-smith-py": (),
    "SWE-Gym/SWE-Gym": (),
    "SWE-Gym/SWE-Gym-Lite": (),
    "R2E-Gym/R2E-Gym-Subset": (),
    "R2E-Gym/R2E-Gym-Lite": (),
    "R2E-Gym/R2E-Gym-V1": (),
    "R2E-Gym/SWE-Bench-Verified": (),
    "R2E-Gym/SWE-Bench-Lite": (),
    "MariusHobbhahn/swe-bench-verified-mini": (),
    "nebius/SWE-rebench": (),
    "nebius/SWE-rebench-V2": (),
    "nebius/SWE-rebench-leaderboard": (),
}
CLASSIC = {
    "R2E-Gym/SWE-Bench-Verified": VERIFIED,
    "R2E-Gym/SWE-Bench-Lite": LITE,
    "MariusHobbhahn/swe-bench-verified-mini": VERIFIED,
}
"""Datasets of classic rows -> the swebench 5 dataset with all of their instances."""
_HUB_IDS = {name.lower(): hub_id for hub_id, aliases in _ALIASES.items() for name in (hub_id, *aliases)}
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_CONFIG = re.compile(r"[\w.-]{1,95}", re.ASCII)

_MAX_LISTED = 20
"""Maximum number of ids in a message."""
FORMS = (
    f"{', '.join(BUNDLED)}, "
    "full, verified, lite, multilingual, multimodal, a hub id (owner/name, or owner/name:config), "
    "a .parquet, .json or .jsonl file, a folder with <split>.parquet, a save_to_disk folder, or a swebench 5 task repo"
)


def is_bundled(name: str) -> bool:
    """Return whether a dataset is one of this project's, ignoring case."""
    return name.strip().lower() in BUNDLED


def hub_id(name: str) -> str | None:
    """Return the hub id of ``name`` with its ``:<config>``, known names in any case; None for an invalid id."""
    base, colon, config = name.partition(":")
    if colon and not _CONFIG.fullmatch(config):
        return None
    base_id = _HUB_IDS.get(base.strip().lower()) or (base if _HUB_ID.fullmatch(base) else None)
    return None if base_id is None else base_id + colon + config


def short_name(hub_id: str) -> str:
    """Return the first alias that is not a hub id, else the hub id."""
    return next((alias for alias in _ALIASES.get(hub_id, ()) if "/" not in alias), hub_id)


def did_you_mean(name: str, choices: list[str] | None = None) -> str:
    """Return `` (did you mean X?)`` for a name close to one of ``choices`` (None: all dataset names), else ""."""
    spellings = (
        {choice.lower(): choice for choice in choices}
        if choices is not None
        else {**_HUB_IDS, **{dataset: dataset for dataset in BUNDLED}}
    )
    close = difflib.get_close_matches(name.strip().lower(), spellings, n=2, cutoff=0.75)
    matches = [spellings[match] if choices is not None or "/" in match else match for match in close]
    return f" (did you mean {' or '.join(dict.fromkeys(matches))}?)" if matches else ""


def list_first(ids: Collection[str]) -> str:
    """Return the first ids, and the number of further ones."""
    return ", ".join(islice(ids, _MAX_LISTED)) + (
        f" and {len(ids) - _MAX_LISTED} more" if len(ids) > _MAX_LISTED else ""
    )


def guess_answers(name: str, columns: set[str]) -> str:
    """Return the swebench 5 dataset that most likely contains the rows of a classic dataset.

    Decides by the name, else by columns that only one dataset has; the full set contains Verified and Lite.
    """
    dataset_id = hub_id(name) or name
    for word, dataset in {"verified": VERIFIED, "lite": LITE, "multilingual": MULTILINGUAL}.items():
        if word in dataset_id.lower():
            return dataset
    if "multimodal" in dataset_id.lower() or "image_assets" in columns:
        return MULTIMODAL
    return VERIFIED if "difficulty" in columns else FULL
