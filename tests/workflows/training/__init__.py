"""``swe-argo train`` with the real SDK, a proxy and a learner of its own, and a server whose model is scripted."""

import pytest

pytest.importorskip("tinker", reason="the extra tinker is not installed")
