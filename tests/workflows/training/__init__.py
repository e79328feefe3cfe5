"""``swe-argo train`` with the real SDK, proxy and learner, and a server with a scripted model."""

import pytest

pytest.importorskip("tinker", reason="the extra tinker is not installed")
