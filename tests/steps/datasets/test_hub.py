"""Datasets of the Hugging Face Hub, from a server that speaks its protocol to the real client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from swe_argo.steps.datasets.hub import retry_busy
from swe_argo.steps.datasets.load import load
from swe_argo.steps.datasets.mini.forms import read_rows
from swe_argo.steps.datasets.names import hub_id
from swe_argo.steps.errors import EXIT_CONFIG, EXIT_INFRA
from swe_argo.steps.families.rows import digest_rows, family_name, normalise
from tests.paths import ROOT
from tests.steps.datasets.hub_server import Hub, Repo, serving
from tests.steps.datasets.sample_rows import classic, row
from tests.steps.families.sample_rows import rebench_v1, rebench_v2, swegym, swesmith

pytest.importorskip("datasets", reason="needs the datasets library, the client of hub ids")
from huggingface_hub.errors import HfHubHTTPError

pytestmark = pytest.mark.xdist_group("hub")  # most share one process that loads everything

Wish = tuple[str, str, dict[str, Any]]
"""Name, split and further arguments of ``load``."""
OLD, NEW, OTHER = "a" * 40, "b" * 40, "c" * 40
CARD = b"""---
configs:
- config_name: default
  data_files:
  - {split: dev, path: data/dev-*}
  - {split: test, path: data/test-*}
---
"""
CONFIGURED = b"""---
configs:
- {config_name: one, data_files: [{split: train, path: one/train-*}]}
- {config_name: two, data_files: [{split: train, path: two/train-*}]}
---
"""
# The libraries read their environment when they are imported, so each environment needs its process.
PROGRAM = """
import json, sys
from swe_argo.steps.datasets.load import load
from swe_argo.steps.families.rows import digest_rows
from swe_argo.steps.errors import StepError
for name, split, more in json.loads(sys.argv[1]):
    try:
        rows = load(name, split, **more)
        report = {"name": rows.name, "revision": rows.revision, "rows": len(rows.rows), "notices": rows.notices}
        report["digest"] = digest_rows(rows.rows)
    except StepError as error:
        report = {"exit": error.exit_code, "reason": error.reason}
    print("report", json.dumps(report))
"""
FAMILY_ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "R2E-Gym/R2E-Gym-Subset": ("r2e", dict(read_rows("mini-r2e", "test")[0][0].value)),
    "smith": ("swesmith", swesmith()),
    "SWE-Gym/SWE-Gym": ("swegym", swegym()),
    "nebius/SWE-rebench": ("rebench", rebench_v1()),
    "nebius/SWE-rebench-V2": ("rebench", rebench_v2()),
}
"""Dataset of each family, as a user may write it -> family and row."""


def parquet(*rows: dict[str, Any]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(rows)), sink)
    return bytes(sink.getvalue())


def lite(new: str = NEW, **behaviour: Any) -> Repo:
    """Return a repository with two commits, of one and of two rows, and a split ``dev``."""
    dev = {"README.md": CARD, "data/dev-00000-of-00001.parquet": parquet(row("a__b-5"))}
    old = {"data/test-00000-of-00001.parquet": parquet(row("a__b-1", patch="old\r\n"))}
    parts = {"data/test-00000-of-00002.parquet": parquet(row("a__b-1", patch="new\r\n"))}
    parts |= {"data/test-00001-of-00002.parquet": parquet(row("a__b-2"))}
    return Repo({OLD: dev | old, new: dev | parts}, {"main": new, "v1": OLD}, **behaviour)


def one_split(split: str, content: bytes, card: bytes = b"# rows") -> Repo:
    return Repo({NEW: {"README.md": card, f"data/{split}-00000-of-00001.parquet": content}}, {"main": NEW})


def make_hub() -> Hub:
    soon = {"Retry_After": "0"}
    busy = {"/revision/": [(429, soon), (503, soon)], "/tree/": [(429, soon)], "/resolve/": [(503, soon)]}
    view = one_split("test", parquet(classic("a__b-1", docker_image="s/i:t")))
    configured = {f"{name}/train-00000-of-00001.parquet": parquet(row(f"a__{name}-1")) for name in ("one", "two")}
    return Hub(
        {
            "SWE-bench/SWE-bench_Lite": lite(),
            "acme/gated": Repo({}, {}, error=(403, "GatedRepo", "Access to this dataset is restricted")),
            "acme/empty": Repo({NEW: {"README.md": b"# nothing"}}, {"main": NEW}),
            "acme/failing": lite(error=(503, "", "Service Unavailable")),
            "acme/busy": lite(busy={part: [*answers] for part, answers in busy.items()}),
            "acme/broken": lite(broken=frozenset({"data/test-00000-of-00002.parquet"})),
            "acme/cached": lite(OTHER),
            "acme/rows": Repo({NEW: {"README.md": CONFIGURED, **configured}}, {"main": NEW}),
            "R2E-Gym/SWE-Bench-Lite": view,
            "Somebody/Lite": view,
            **{str(hub_id(name)): one_split("train", parquet(family)) for name, (_, family) in FAMILY_ROWS.items()},
        },
        retry_after="0",
        refuses=f"tree/{OTHER}",
    )


def environment(endpoint: str, home: Path, **more: str) -> dict[str, str]:
    """Return an environment without settings of this machine for the libraries."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    own = {name: value for name, value in own.items() if "proxy" not in name.lower()}
    return own | {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1", **more}


def load_all(endpoint: str, home: Path, *wishes: Wish, **more: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", PROGRAM, json.dumps(wishes)]
    environ = environment(endpoint, home, **more)
    result = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=240)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    return [json.loads(line.removeprefix("report ")) for line in lines if line.startswith("report ")]


LOADED: dict[str, tuple[Wish, dict[str, Any]]] = {
    "newest": (("lite", "test", {}), {"name": "SWE-bench/SWE-bench_Lite", "revision": NEW, "rows": 2}),
    "tag": (("princeton-nlp/SWE-bench_Lite", "test", {"revision": "v1"}), {"revision": OLD, "rows": 1}),
    "commit": (("swe-bench/swe-bench_lite", "test", {"revision": OLD}), {"revision": OLD, "rows": 1}),
    "split": (("SWE-bench/SWE-bench_Lite", "dev", {}), {"revision": NEW, "rows": 1}),
    "busy": (("acme/busy", "test", {}), {"revision": NEW, "rows": 2}),
    "cached commit": (("acme/cached", "test", {"revision": OLD}), {"revision": OLD, "rows": 1}),
    "configuration": (("acme/rows:one", "train", {}), {"name": "acme/rows:one", "rows": 1}),
    "joined": (
        ("R2E-Gym/SWE-Bench-Lite", "test", {}),
        {"notices": [f"1 classic rows are joined with SWE-bench/SWE-bench_Lite@{NEW}"]},
    ),
    "joined with a tag": (
        ("r2e-gym/swe-bench-lite", "test", {"answers": "lite@v1"}),
        {"rows": 1, "notices": [f"1 classic rows are joined with SWE-bench/SWE-bench_Lite@{OLD}"]},
    ),
    **{name: ((name.lower(), "train", {}), {"revision": NEW, "rows": 1}) for name in FAMILY_ROWS},
}
CONFIGURATIONS = "has the configurations 'one', 'two': select one with acme/rows:CONFIG"
REFUSED: dict[str, tuple[Wish, int, list[str]]] = {
    "absent": (
        ("SWE-bench/SWE-bench_Light", "test", {}),
        EXIT_CONFIG,
        ["dataset: there is no dataset SWE-bench/SWE-bench_Light on HUB (did you mean SWE-bench/SWE-bench_Lite"],
    ),
    "split": (
        ("lite", "train", {}),
        EXIT_CONFIG,
        ["split: SWE-bench/SWE-bench_Lite has no split 'train'; it has dev, test"],
    ),
    "revision": (
        ("lite", "test", {"revision": "v9"}),
        EXIT_CONFIG,
        ["revision: SWE-bench/SWE-bench_Lite on ", "has no commit, tag or branch 'v9'"],
    ),
    "gated": (("acme/gated", "test", {}), EXIT_CONFIG, ["is gated", "HF_TOKEN"]),
    "empty": (("acme/empty", "test", {}), EXIT_CONFIG, ["dataset: acme/empty on "]),
    "failing": (("acme/failing", "test", {}), EXIT_INFRA, ["the hub answered 503"]),
    "broken": (("acme/broken", "test", {}), EXIT_INFRA, ["cannot reach the hub"]),
    "cached": (("acme/cached", "test", {}), EXIT_INFRA, ["hub"]),  # a failing hub is no reason to use its cache
    "no configuration": (("acme/rows", "train", {}), EXIT_CONFIG, [CONFIGURATIONS]),
    "unknown configuration": (("acme/rows:three", "train", {}), EXIT_CONFIG, [CONFIGURATIONS]),
    "classic": (("Somebody/Lite", "test", {}), EXIT_CONFIG, ["--answers SWE-bench/SWE-bench_Lite"]),
}


@dataclass(frozen=True)
class LoadedHub:
    """A hub, a cache, and the reports of one process that loaded everything in LOADED and REFUSED."""

    hub: Hub
    home: Path
    loaded: dict[str, dict[str, Any]]
    refused: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def loaded_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedHub]:
    home = tmp_path_factory.mktemp("cache")
    with serving(make_hub()) as hub:
        wishes = [wish for wish, _ in LOADED.values()] + [wish for wish, _, _ in REFUSED.values()]
        reports = load_all(f"{hub.endpoint}/", home, *wishes)
        assert len(reports) == len(wishes)
        loaded = dict(zip(LOADED, reports[: len(LOADED)], strict=True))
        yield LoadedHub(hub, home, loaded, dict(zip(REFUSED, reports[len(LOADED) :], strict=True)))


@pytest.mark.parametrize("name", LOADED)
def test_hub_rows_are_loaded(loaded_hub: LoadedHub, name: str) -> None:
    report, (_, expected) = loaded_hub.loaded[name], LOADED[name]
    assert expected.items() <= report.items(), report


@pytest.mark.parametrize("name", REFUSED)
def test_hub_refusal_names_cause(loaded_hub: LoadedHub, name: str) -> None:
    report, (_, code, parts) = loaded_hub.refused[name], REFUSED[name]
    assert report.get("exit") == code, report
    for part in parts:
        assert part.replace("HUB", loaded_hub.hub.endpoint) in report["reason"]
    assert "\n" not in report["reason"]


def test_hub_rows_equal_file_rows(loaded_hub: LoadedHub, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(loaded_hub.hub.repos["SWE-bench/SWE-bench_Lite"].commits[OLD]["data/test-00000-of-00001.parquet"])
    digests = {name: report["digest"] for name, report in loaded_hub.loaded.items()}
    assert digests["commit"] == digests["tag"] == digest_rows(load(str(path), "test").rows)
    assert digests["configuration"] == digest_rows([normalise(row("a__one-1"), "r")])
    for name, (family, family_row) in FAMILY_ROWS.items():
        normalised = normalise(family_row, "r")
        assert family_name(normalised) == family
        assert digests[name] == digest_rows([normalised])


def test_hub_downloads_one_split(loaded_hub: LoadedHub) -> None:
    files = [line for line in loaded_hub.hub.requests if "acme/busy" in line and ".parquet" in line]
    assert files
    assert all("/data/test-" in line for line in files)


def test_offline_hub_uses_cache(loaded_hub: LoadedHub) -> None:
    count = len(loaded_hub.hub.requests)
    wishes = [("lite", "test", {"revision": revision}) for revision in (NEW, "v1")]
    pinned, floating = load_all(loaded_hub.hub.endpoint, loaded_hub.home, *wishes, HF_HUB_OFFLINE="1")
    assert pinned == loaded_hub.loaded["newest"]
    assert floating["exit"] == EXIT_CONFIG
    assert "HF_HUB_OFFLINE" in floating["reason"]
    assert len(loaded_hub.hub.requests) == count


@pytest.mark.long
def test_failing_hub_ignores_cache_of_library(tmp_path: Path) -> None:
    with serving(make_hub()) as hub:
        program = "import datasets; datasets.load_dataset('acme/cached', revision='v1')"
        subprocess.run([sys.executable, "-c", program], env=environment(hub.endpoint, tmp_path), check=True)
        (report,) = load_all(hub.endpoint, tmp_path, ("acme/cached", "test", {}))
    assert report.get("exit") == EXIT_INFRA


def test_lost_hub_is_infra_failure(tmp_path: Path) -> None:
    with serving(Hub()) as hub:
        endpoint = hub.endpoint
    (report,) = load_all(endpoint, tmp_path, ("lite", "test", {}))
    assert report["exit"] == EXIT_INFRA
    assert report["reason"].startswith(f"cannot reach the hub at {endpoint} for SWE-bench/SWE-bench_Lite: ")
    assert "HF_ENDPOINT" in report["reason"]


def test_unusable_hub_cache_is_named(tmp_path: Path) -> None:
    with serving(Hub({"SWE-bench/SWE-bench_Lite": lite()})) as hub:
        (cache,) = load_all(hub.endpoint, Path("/dev/null/cache"), ("lite", "test", {}))
    assert cache["exit"] == EXIT_CONFIG
    assert "set HF_HOME" in cache["reason"]


@pytest.mark.long
def test_unusable_hub_setting_is_named(tmp_path: Path) -> None:
    with serving(Hub({"SWE-bench/SWE-bench_Lite": lite()})) as hub:
        (address,) = load_all(f"{hub.endpoint}/elsewhere", tmp_path, ("lite", "test", {}))
        hub.repos["SWE-bench/SWE-bench_Lite"].error = (401, "", "Invalid credentials in Authorization header")
        (token,) = load_all(hub.endpoint, tmp_path, ("lite", "test", {}), HF_TOKEN="hf_wrong")
    assert [report["exit"] for report in (address, token)] == [EXIT_CONFIG] * 2
    assert f"Is HF_ENDPOINT={hub.endpoint}/elsewhere a hub" in address["reason"]
    assert token["reason"].endswith(f"HF_TOKEN is not valid on {hub.endpoint}")
    assert "hf_wrong" not in token["reason"]


def busy_error(status: int, headers: dict[str, str]) -> HfHubHTTPError:
    lower = {name.lower(): value for name, value in headers.items()}
    response: Any = SimpleNamespace(status_code=status, headers=lower, request=None)
    return HfHubHTTPError(f"{status}", response=response)


WAITS: dict[str, tuple[int, dict[str, str], int]] = {
    "seconds": (429, {"Retry-After": "40"}, 40),
    "a date": (503, {"Retry-After": "in a minute"}, 60),
    "the window's end": (429, {"RateLimit": '"api";r=0;t=55', "RateLimit-Policy": '"fixed window";q=500;w=300'}, 55),
    "nothing": (503, {}, 1),
}


@pytest.mark.parametrize("form", WAITS)
def test_busy_hub_delay_is_honoured(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    status, headers, least = WAITS[form]
    date = formatdate(time.time() + 60, usegmt=True)
    errors = [busy_error(status, {name: value.replace("in a minute", date) for name, value in headers.items()})]
    waits = list[float]()
    monkeypatch.setattr("time.sleep", waits.append)

    def read() -> Any:
        if errors:
            raise ConnectionError("wrapped") from errors.pop()
        return [], NEW

    assert retry_busy(read) == ([], NEW)
    assert len(waits) == 1
    assert least / 2 - 1 <= waits[0] <= least + 1


@pytest.mark.parametrize(("headers", "requests"), [({}, 5), ({"Retry-After": "7200"}, 1)])
def test_busy_hub_is_given_up(headers: dict[str, str], requests: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    calls = []

    def read() -> Any:
        calls.append(1)
        raise busy_error(429, headers)

    with pytest.raises(HfHubHTTPError):
        retry_busy(read)
    assert len(calls) == requests
