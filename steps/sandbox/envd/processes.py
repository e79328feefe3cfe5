"""Processes of one sandbox, by the SDK's client of envd.

``Sandbox.commands`` is not used: it reads output as text and runs everything in a login shell, whose profiles change
variables such as PATH and take a third of a short command's time.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

from e2b import Sandbox
from e2b.api import proxy_to_config
from e2b.api.client_sync import get_envd_api, get_pyqwest_transport
from e2b.connection_config import KEEPALIVE_PING_HEADER, READ_TIMEOUT
from e2b.envd.api import check_sandbox_health
from e2b.envd.client_shared import ENVD_JSON_CODEC, ENVD_RPC_COMPRESSION
from e2b.envd.client_sync import PlainHTTPErrorTransport, as_stream
from e2b.envd.interceptors import build_interceptors
from e2b.envd.process.process_connect import ProcessClientSync
from e2b.envd.process.process_pb import ProcessConfig, StartRequest
from e2b.envd.rpc import handle_rpc_exception_with_health
from e2b.envd.utils import authentication_header, timeout_to_ms
from packaging.version import Version
from pyqwest import SyncClient

_ALIVE_S = 5
"""Seconds between keepalives of a silent process; after READ_TIMEOUT without any the connection is lost."""


class BoxProcesses:
    """A client that runs processes in a sandbox. Thread-safe."""

    def __init__(self, box: Sandbox) -> None:
        config, address = box.connection_config, box.envd_api_url
        transport = get_pyqwest_transport(proxy_to_config(config.proxy), READ_TIMEOUT, http_version=config.http_version)
        self._client = ProcessClientSync(
            address,
            codec=ENVD_JSON_CODEC,
            interceptors=build_interceptors(config, address),
            http_client=SyncClient(PlainHTTPErrorTransport(transport)),
            **ENVD_RPC_COMPRESSION,
        )
        self._probe = get_envd_api(config, address, retry_connect=False)
        self._headers = {**authentication_header(Version("0"), "root"), KEEPALIVE_PING_HEADER: str(_ALIVE_S)}

    def start(self, program: str, *words: str, timeout_s: float = 0) -> Generator[tuple[int, bytes], None, int]:
        """Run a program as root; yield pieces of stdout (0) and stderr (1), and empty pieces during silence.

        Returns the exit code. The service ends the program after ``timeout_s`` (0: never). Closing the generator does
        not end it. Raises the errors of the SDK's ``commands.run``, ConnectionError if the stream ends early.
        """
        request = StartRequest(process=ProcessConfig(cmd=program, args=list(words), cwd="/"), stdin=False)
        try:
            stream = self._client.start(request, headers=self._headers, timeout_ms=timeout_to_ms(timeout_s))
            with closing(as_stream(stream)) as answers:
                for answer in answers:
                    event = answer.event.event if answer.event is not None else None
                    if event is None or event.field in ("start", "keepalive"):
                        yield 0, b""
                    elif event.field == "end":
                        return int(event.value.exit_code)
                    elif event.value.output is not None:
                        yield int(event.value.output.field == "stderr"), event.value.output.value
        except Exception as error:
            raise handle_rpc_exception_with_health(error, lambda: check_sandbox_health(self._probe)) from error
        raise ConnectionError("the process's output stream ended before the process")
