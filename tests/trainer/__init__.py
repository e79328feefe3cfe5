"""A real trainer on this machine's processors, behind the wire protocol of Tinker's SDK: `make test-training`."""

import pytest

pytest.importorskip("tinker", reason="the extra tinker is not installed")
