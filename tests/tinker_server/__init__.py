"""A server that speaks Tinker's wire protocol to the real SDK, and the proxy in front of it."""

import pytest

pytest.importorskip("tinker", reason="the extra tinker is not installed")
