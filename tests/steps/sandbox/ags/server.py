"""A server that speaks AGS' wire protocols to the real SDKs, and runs commands in sandboxes of this machine."""

from __future__ import annotations

from pathlib import Path

from werkzeug.wrappers import Request, Response

from swe_argo.steps.contracts.sandbox_spec import AGSSpec
from swe_argo.steps.sandbox.ags.tools import ServiceImage, configuration, tool_name
from tests.steps.sandbox.ags.control import SECRET_ID, SECRET_KEY, ControlPlane
from tests.steps.sandbox.ags.faults import Faults
from tests.steps.sandbox.envd.machines import Machines
from tests.steps.sandbox.envd.server import EnvdServer


class AGSServer(EnvdServer):
    """``images``: the folder of folder images; ``image_names``: the service's image -> the folder image that it is."""

    def __init__(self, images: Path, image_names: dict[str, str], quota: int = 10) -> None:
        self.faults = Faults()
        super().__init__(Machines(images, image_names), self.faults)
        self.control = ControlPlane(self.machines, self.faults, quota)

    @property
    def variables(self) -> dict[str, str]:
        """Of the environment, for us; the data plane's SDK has one for the version of HTTP."""
        return {
            "TENCENTCLOUD_SECRET_ID": SECRET_ID,
            "TENCENTCLOUD_SECRET_KEY": SECRET_KEY,
            "AGS_REGION": "ap-shanghai",
            "AGS_ENDPOINT": self.address,
            "AGS_SANDBOX_URL": self.address,
            "E2B_HTTP_VERSION": "1.1",
        }

    def add_shared_tools(self) -> None:
        """Those that ``swe-argo ags sync`` makes."""
        for mode in ("SANDBOX", "PUBLIC"):
            self.control.tools.CreateSandboxTool(
                {
                    "ToolName": tool_name(AGSSpec(), "", mode),
                    "ToolType": "custom",
                    "NetworkConfiguration": {"NetworkMode": mode},
                    "CustomConfiguration": configuration(ServiceImage("envd", "personal")),
                }
            )

    def answer_control(self, request: Request) -> Response:
        return self.control.answer(request)
