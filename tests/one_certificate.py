"""A fixture for tests that open many HTTP clients: each loads one certificate instead of all (25 ms of CPU)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest

END = "-----END CERTIFICATE-----"


@pytest.fixture(scope="session", autouse=True)
def one_certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let clients trust one authority only: these tests ask their own servers by http."""
    file = tmp_path_factory.mktemp("certificates") / "one.pem"
    authorities = Path(certifi.where()).read_text("utf-8")
    file.write_text(authorities[authorities.index("-----BEGIN") : authorities.index(END) + len(END)] + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(file))
        yield
