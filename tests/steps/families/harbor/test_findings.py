"""What a layer changes of that by which a verifier runs is named, and what tasks ask for is not."""

from __future__ import annotations

import pytest

from swe_argo.steps.families.harbor.findings import examine_layer
from swe_argo.steps.layers.archive import LayerContent


def codes(*, deleted: str = "", replaced: str = "", new: str = "", excluded: str = "") -> list[str]:
    deleted_paths, replaced_paths, new_paths, excluded_paths = (
        text.encode().split() for text in (deleted, replaced, new, excluded)
    )
    content = LayerContent(deleted_paths, set(replaced_paths), dict.fromkeys((*replaced_paths, *new_paths), b"0"))
    return [finding.code for finding in examine_layer(content, excluded_paths)]


@pytest.mark.parametrize(
    "replaced",
    [
        "/usr/bin/bash",
        "/usr/local/bin/python3",
        "/usr/local",
        "/usr/bin",
        "/lib",
        "/etc/alternatives/awk",
        "/opt/venv/lib/python3.12/site-packages/_pytest/runner.py",
        "/opt/miniconda3/envs/testbed/bin/python",
        "/root/.venv/bin/pytest",
        "/app/.venv/lib/python3.12/site-packages/pytest/__init__.py",
    ],
)
def test_replaced_programs_are_named(replaced: str) -> None:
    assert codes(replaced=replaced) == ["layer_changes_programs"]


def test_moved_program_folder_is_named() -> None:
    assert codes(replaced="/opt", deleted="/usr/local/bin /usr/local/lib") == ["layer_changes_programs"]


@pytest.mark.parametrize(
    "new",
    [
        "/conftest.py",
        "/pytest.ini",
        "/pyproject.toml",
        "/app/pytest.py",
        "/root/.local/lib/python3.12/site-packages/_pytest/runner.py",
        "/root/.config/uv/uv.toml",
    ],
)
def test_code_run_later_is_named(new: str) -> None:
    assert codes(new=new) == ["layer_runs_code_later"]


def test_newlines_in_names_hide_nothing() -> None:
    content = LayerContent([b"/usr/lib/x\ny"], set(), {})
    assert [finding.code for finding in examine_layer(content, [])] == ["layer_changes_programs"]


def test_ordinary_changes_are_no_finding() -> None:
    installed = "/usr/bin/jq /usr/lib/x86_64-linux-gnu/libjq.so.1 /usr/local/lib/python3.12/site-packages/x/__init__.py"
    work = "/app/conftest.py /app/pyproject.toml /app/bin/tool /app/lib/x.py /app/package.json /root/.gitconfig"
    shell = "/root/.bashrc /root/.profile /etc/profile.d/go.sh /root/.local/bin/uv /usr/local/bin/sed"
    packages = "/usr/lib/python3/dist-packages"
    editable = (
        f"{packages}/x.pth {packages}/__editable___x_finder.py {packages}/x-1.dist-info/RECORD /usr/local/bin/tool"
    )
    venv = "/app/.venv/bin/pytest /app/.venv/lib/python3.12/site-packages/pytest/__init__.py"
    new, replaced = f"{installed} {work} {venv} {shell} {editable}", f"{work} {editable} /root/.bashrc"
    assert codes(new=new, replaced=replaced, deleted="/app/old", excluded="/logs /run") == []
