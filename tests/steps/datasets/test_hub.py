from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
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
from tests.long_params import long_unless
from tests.paths import DATA, ROOT, needs_data
from tests.steps.datasets.hub_server import Hub, Repo, serving
from tests.steps.datasets.sample_rows import classic, row
from tests.steps.families.rebench.make_rows import v1_row, v2_row
from tests.steps.families.swegym.make_rows import make_row as make_swegym
from tests.steps.families.swesmith.make_rows import make_row as make_swesmith

pytest.importorskip("datasets", reason="needs the datasets library, the client of hub ids")
from huggingface_hub.errors import HfHubHTTPError

OLD, NEW = "a" * 40, "b" * 40
CARD = b"""---
configs:
- config_name: default
  data_files:
  - {split: dev, path: data/dev-*}
  - {split: test, path: data/test-*}
---
# Rows
"""
# The libraries read their environment when they are imported, so each load is a process of its own.
PROGRAM = """
import json, sys
from swe_argo.steps.datasets.load import load
from swe_argo.steps.families.rows import digest_rows
from swe_argo.steps.errors import StepError
for name, split, more in json.loads(sys.argv[1]):
    try:
        got = load(name, split, **more)
        told = {"name": got.name, "revision": got.revision, "rows": len(got.rows), "digest": digest_rows(got.rows),
                "notices": got.notices}
    except StepError as error:
        told = {"exit": error.exit_code, "reason": error.reason}
    print("told", json.dumps(told))
"""
Wish = tuple[str, str, dict[str, Any]]


def _parquet(*rows: dict[str, Any]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(rows)), sink)
    return bytes(sink.getvalue())


def _repo() -> Repo:
    first, two = row("a__b-1", patch="old\r\n"), row("a__b-1", patch="new\r\n")
    dev = {"data/dev-00000-of-00001.parquet": _parquet(row("a__b-5"))}
    parts = {
        "data/test-00000-of-00002.parquet": _parquet(two),
        "data/test-00001-of-00002.parquet": _parquet(row("a__b-2")),
    }
    return Repo(
        commits={
            OLD: {"README.md": CARD, "data/test-00000-of-00001.parquet": _parquet(first), **dev},
            NEW: {"README.md": CARD, **parts, **dev},
        },
        refs={"main": NEW, "v1": OLD},
    )


def busy(status: int, headers: dict[str, str]) -> HfHubHTTPError:
    """The library's error of an answer."""
    lower = {name.lower(): value for name, value in headers.items()}
    response: Any = SimpleNamespace(status_code=status, headers=lower, request=None)
    return HfHubHTTPError(f"{status}", response=response)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving(Hub({"SWE-bench/SWE-bench_Lite": _repo()})) as served:
        yield served


def _environment(endpoint: str, home: Path, **more: str) -> dict[str, str]:
    """No setting or cache of this machine, or of another test, reaches the libraries."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environ = {name: value for name, value in environ.items() if "proxy" not in name.lower()}
    return environ | {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1", **more}


def _run(endpoint: str, home: Path, *specs: Wish, **environment: str) -> list[dict[str, Any]]:
    ran = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", PROGRAM, json.dumps(specs)],
        cwd=ROOT,
        env=_environment(endpoint, home, **environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line.removeprefix("told ")) for line in ran.stdout.splitlines() if line.startswith("told ")]


def test_alias_loads_from_hub(hub: Hub, tmp_path: Path) -> None:
    newest, tagged, pinned, dev = _run(
        hub.endpoint + "/",
        tmp_path,
        ("lite", "test", {}),
        ("princeton-nlp/SWE-bench_Lite", "test", {"revision": "v1"}),
        ("swe-bench/swe-bench_lite", "test", {"revision": OLD}),
        ("SWE-bench/SWE-bench_Lite", "dev", {}),
    )
    assert (newest["name"], newest["revision"], newest["rows"]) == ("SWE-bench/SWE-bench_Lite", NEW, 2)
    assert (tagged["revision"], tagged["rows"]) == (OLD, 1)
    assert pinned == tagged
    assert (dev["revision"], dev["rows"]) == (NEW, 1)


def test_hub_downloads_one_split(hub: Hub, tmp_path: Path) -> None:
    _run(hub.endpoint, tmp_path, ("lite", "test", {}))
    fetched = [line for line in hub.requests if line.startswith('"GET') and ".parquet" in line]
    assert len(fetched) == 2
    assert all("/data/test-" in line for line in fetched)


def test_hub_rows_equal_file_rows(hub: Hub, tmp_path: Path) -> None:
    (report,) = _run(hub.endpoint, tmp_path / "home", ("lite", "test", {"revision": OLD}))
    path = tmp_path / "rows.parquet"
    path.write_bytes(hub.repos["SWE-bench/SWE-bench_Lite"].commits[OLD]["data/test-00000-of-00001.parquet"])
    assert report["digest"] == digest_rows(load(str(path), "test").rows)


def test_missing_hub_parts_are_refused(hub: Hub, tmp_path: Path) -> None:
    hub.repos["acme/gated"] = Repo({}, {}, error=(403, "GatedRepo", "Access to this dataset is restricted"))
    hub.repos["acme/empty"] = Repo({NEW: {"README.md": b"# nothing"}}, {"main": NEW})
    absent, split, revision, gated, empty = _run(
        hub.endpoint,
        tmp_path,
        ("SWE-bench/SWE-bench_Light", "test", {}),
        ("lite", "train", {}),
        ("lite", "test", {"revision": "v9"}),
        ("acme/gated", "test", {}),
        ("acme/empty", "test", {}),
    )
    for report in (absent, split, revision, gated, empty):
        assert report["exit"] == EXIT_CONFIG
        assert "\n" not in report["reason"]
    assert absent["reason"].startswith(
        f"dataset: there is no dataset SWE-bench/SWE-bench_Light on {hub.endpoint} "
        "(did you mean SWE-bench/SWE-bench_Lite"
    )
    assert split["reason"] == "split: SWE-bench/SWE-bench_Lite has no split 'train'; it has dev, test"
    assert revision["reason"].startswith("revision: SWE-bench/SWE-bench_Lite on ")
    assert revision["reason"].endswith("has no commit, tag or branch 'v9'")
    assert "is gated" in gated["reason"]
    assert "HF_TOKEN" in gated["reason"]
    assert empty["reason"].startswith("dataset: acme/empty on ")


def test_lost_hub_is_infra_failure(tmp_path: Path) -> None:
    with serving(Hub()) as gone:
        endpoint = gone.endpoint
    (report,) = _run(endpoint, tmp_path, ("lite", "test", {}))
    assert report["exit"] == EXIT_INFRA
    assert report["reason"].startswith(f"cannot reach the hub at {endpoint} for SWE-bench/SWE-bench_Lite: ")
    assert "HF_ENDPOINT" in report["reason"]


def test_failing_hub_is_infra_failure(hub: Hub, tmp_path: Path) -> None:
    hub.repos["SWE-bench/SWE-bench_Lite"].error = (503, "", "Service Unavailable")
    hub.retry_after = "0"
    (report,) = _run(hub.endpoint, tmp_path, ("lite", "test", {}))
    assert report["exit"] == EXIT_INFRA
    assert "the hub answered 503" in report["reason"]


def test_busy_hub_is_retried(hub: Hub, tmp_path: Path) -> None:
    soon = {"Retry_After": "0"}
    hub.repos["SWE-bench/SWE-bench_Lite"].busy = {
        "/revision/": [(429, soon), (503, soon)],
        "/tree/": [(429, soon)],
        "/resolve/": [(503, soon)],
    }
    (report,) = _run(hub.endpoint, tmp_path, ("lite", "test", {}))
    assert (report["revision"], report["rows"]) == (NEW, 2)


WAITS = {
    "seconds": ({"Retry-After": "40"}, 40),
    "a date": ({"Retry-After": "in a minute"}, 60),
    "the window's end": ({"RateLimit": '"api";r=0;t=55', "RateLimit-Policy": '"fixed window";q=500;w=300'}, 55),
    "nothing": ({}, 1),
}


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(("headers", "least"), WAITS.values(), ids=WAITS.keys())
def test_busy_hub_delay_is_honoured(
    status: int, headers: dict[str, str], least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    date = formatdate(time.time() + 60, usegmt=True)
    sent_headers = {name: value.replace("in a minute", date) for name, value in headers.items()}
    waits, met = list[float](), [busy(status, sent_headers)]
    monkeypatch.setattr("time.sleep", waits.append)

    def read() -> Any:
        if met:
            raise ConnectionError("wrapped") from met.pop()
        return [], NEW

    assert retry_busy(read) == ([], NEW)
    assert len(waits) == 1
    assert least / 2 - 1 <= waits[0] <= least + 1


@pytest.mark.parametrize(
    ("headers", "requests"), [({}, 5), ({"Retry-After": "7200"}, 1)], ids=["no word", "in two hours"]
)
def test_busy_hub_is_given_up(headers: dict[str, str], requests: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    calls = []

    def read() -> Any:
        calls.append(1)
        raise busy(429, headers)

    with pytest.raises(HfHubHTTPError):
        retry_busy(read)
    assert len(calls) == requests


def test_cut_download_is_infra_failure(hub: Hub, tmp_path: Path) -> None:
    hub.repos["SWE-bench/SWE-bench_Lite"].broken = frozenset({"data/test-00000-of-00002.parquet"})
    (report,) = _run(hub.endpoint, tmp_path, ("lite", "test", {}))
    assert report["exit"] == EXIT_INFRA
    assert "cannot reach the hub" in report["reason"]


@pytest.mark.parametrize("cached_by", long_unless(("this project",), ("this project", "the library alone")))
def test_failing_hub_ignores_cache(hub: Hub, tmp_path: Path, cached_by: str) -> None:
    if cached_by == "this project":
        (first,) = _run(hub.endpoint, tmp_path, ("lite", "test", {"revision": OLD}))
        assert first["rows"] == 1
    else:
        program = "import datasets; datasets.load_dataset('SWE-bench/SWE-bench_Lite', revision='v1')"
        subprocess.run([sys.executable, "-c", program], env=_environment(hub.endpoint, tmp_path), check=True)
    hub.refuses = f"tree/{NEW}"
    (report,) = _run(hub.endpoint, tmp_path, ("lite", "test", {}))
    assert report.get("exit") == EXIT_INFRA
    assert "hub" in report["reason"]


def test_offline_hub_uses_cache(hub: Hub, tmp_path: Path) -> None:
    (online,) = _run(hub.endpoint, tmp_path, ("lite", "test", {"revision": NEW}))
    count = len(hub.requests)
    pinned, floating = _run(
        hub.endpoint,
        tmp_path,
        ("lite", "test", {"revision": NEW}),
        ("lite", "test", {"revision": "v1"}),
        HF_HUB_OFFLINE="1",
    )
    assert pinned == online
    assert floating["exit"] == EXIT_CONFIG
    assert "HF_HUB_OFFLINE" in floating["reason"]
    assert len(hub.requests) == count


def test_unwritable_hub_cache_is_named(hub: Hub, tmp_path: Path) -> None:
    (report,) = _run(hub.endpoint, Path("/dev/null/cache"), ("lite", "test", {}))
    assert report["exit"] == EXIT_CONFIG
    assert "set HF_HOME" in report["reason"]


def test_wrong_hub_endpoint_is_named(hub: Hub, tmp_path: Path) -> None:
    (report,) = _run(f"{hub.endpoint}/elsewhere", tmp_path, ("lite", "test", {}))
    assert report["exit"] == EXIT_CONFIG
    assert f"Is HF_ENDPOINT={hub.endpoint}/elsewhere a hub" in report["reason"]


def test_classic_hub_rows_are_joined(hub: Hub, tmp_path: Path) -> None:
    view = {
        "README.md": b"# view",
        "data/test-00000-of-00001.parquet": _parquet(classic("a__b-1", docker_image="s/i:t")),
    }
    hub.repos["R2E-Gym/SWE-Bench-Lite"] = Repo({NEW: view}, {"main": NEW})
    hub.repos["Somebody/Lite"] = hub.repos["R2E-Gym/SWE-Bench-Lite"]
    joined_by_default, refused, joined = _run(
        hub.endpoint,
        tmp_path,
        ("R2E-Gym/SWE-Bench-Lite", "test", {}),
        ("Somebody/Lite", "test", {}),
        ("r2e-gym/swe-bench-lite", "test", {"answers": "lite@v1"}),
    )
    assert refused["reason"].endswith("--answers SWE-bench/SWE-bench_Lite")
    assert joined_by_default["notices"] == [f"1 classic rows are joined with SWE-bench/SWE-bench_Lite@{NEW}"]
    assert joined["rows"] == 1
    assert joined["notices"] == [f"1 classic rows are joined with SWE-bench/SWE-bench_Lite@{OLD}"]


def _configured(*configs: str) -> bytes:
    """A card of several configurations, each with a split ``train``."""
    lines = "".join(
        f"- config_name: {name}\n  data_files:\n  - {{split: train, path: {name}/train-*}}\n" for name in configs
    )
    return f"---\nconfigs:\n{lines}---\n# Rows\n".encode()


def test_hub_configuration_must_be_named(hub: Hub, tmp_path: Path) -> None:
    files = {f"{name}/train-00000-of-00001.parquet": _parquet(row(f"a__{name}-1")) for name in ("one", "two")}
    hub.repos["acme/rows"] = Repo({NEW: {"README.md": _configured("one", "two"), **files}}, {"main": NEW})
    first, none, wrong = _run(
        hub.endpoint,
        tmp_path,
        ("acme/rows:one", "train", {}),
        ("acme/rows", "train", {}),
        ("acme/rows:three", "train", {}),
    )
    assert (first["rows"], first["name"]) == (1, "acme/rows:one")
    assert first["digest"] == digest_rows([normalise(row("a__one-1"), "r")])
    for report in (none, wrong):
        assert report["exit"] == EXIT_CONFIG
        assert report["reason"].endswith("has the configurations 'one', 'two': select one with acme/rows:CONFIG")


def test_rejected_hub_token_is_named(hub: Hub, tmp_path: Path) -> None:
    message = "Invalid credentials in Authorization header"
    hub.repos["SWE-bench/SWE-bench_Lite"].error = (401, "", message)
    (report,) = _run(hub.endpoint, tmp_path, ("lite", "test", {}), HF_TOKEN="hf_wrong")
    assert report["exit"] == EXIT_CONFIG
    assert report["reason"].endswith(f"HF_TOKEN is not valid on {hub.endpoint}")
    assert "hf_wrong" not in report["reason"]


R2E_ROW = read_rows("mini-r2e", "test")[0][0].value
FAMILY_ROWS = {
    **dict.fromkeys((f"R2E-Gym/R2E-Gym-{name}" for name in ("Subset", "Lite", "V1")), ("r2e", R2E_ROW)),
    **dict.fromkeys(("smith", "SWE-bench/SWE-smith-py"), ("swesmith", make_swesmith())),
    **dict.fromkeys(("SWE-Gym/SWE-Gym", "SWE-Gym/SWE-Gym-Lite"), ("swegym", make_swegym())),
    **dict.fromkeys(("nebius/SWE-rebench", "nebius/SWE-rebench-leaderboard"), ("rebench", v1_row())),
    "nebius/SWE-rebench-V2": ("rebench", v2_row()),
}


def test_family_rows_load_from_hub(hub: Hub, tmp_path: Path) -> None:
    """Their only split is ``train``, which the hub says where another one is asked for."""
    for name, (_, source) in FAMILY_ROWS.items():
        files = {"README.md": b"# rows", "data/train-00000-of-00001.parquet": _parquet(source)}
        hub.repos[str(hub_id(name))] = Repo({NEW: files}, {"main": NEW})
    *loaded, refused = _run(
        hub.endpoint, tmp_path, *((name.lower(), "train", {}) for name in FAMILY_ROWS), ("smith", "test", {})
    )
    assert refused["reason"] == "split: SWE-bench/SWE-smith has no split 'test'; it has train"
    for report, (family, source) in zip(loaded, FAMILY_ROWS.values(), strict=True):
        normalised = normalise(source, "r")
        assert family_name(normalised) == family
        assert (report["rows"], report["revision"], report["digest"]) == (1, NEW, digest_rows([normalised]))


@needs_data
def test_verified_rows_load_from_hub(tmp_path: Path) -> None:
    path = DATA / "swebench/verified_test.parquet"
    files = {"README.md": b"# Verified", "data/test-00000-of-00001.parquet": path.read_bytes()}
    with serving(Hub({"SWE-bench/SWE-bench_Verified": Repo({NEW: files}, {"main": NEW})})) as hub:
        (report,) = _run(hub.endpoint, tmp_path, ("verified", "test", {}))
    assert (report["rows"], report["revision"]) == (500, NEW)
    assert report["digest"] == digest_rows(load(str(path), "test").rows)
