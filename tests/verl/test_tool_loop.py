"""verl's own ToolAgentLoop, with our sandbox and our verdict, on a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

verl = pytest.importorskip("verl", reason="needs verl: make test-verl")

from tests.solutions import rows as mini_rows  # noqa: E402
from tests.verl.loops import call, play  # noqa: E402

if TYPE_CHECKING:
    from tests.verl.conftest import SandboxFolders
    from tests.verl.loops import Loops

INSTANCE = "mini__slugkit-2"
GOLD = mini_rows()[INSTANCE]["patch"]


def test_the_verified_patch_through_the_tool_gives_reward_1(loops: Loops, rows: str, sandboxes: SandboxFolders) -> None:
    output = loops.play(rows, INSTANCE, play(call("submit_solution", patch=GOLD)))
    assert output.reward_score == 1.0
    assert output.extra_fields["reward_extra_info"]["outcome"] == "resolved"
