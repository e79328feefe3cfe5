"""Agent programs: each runs in the sandbox as it is, and asks its model through the gate."""

from __future__ import annotations

from swe_argo.steps.agents.gate.channel import Gate, choose_port
from swe_argo.steps.agents.gate.events import Ended, GateRequest, Printed, Refused
from swe_argo.steps.agents.gate.limits import GateLimits
from swe_argo.steps.agents.program.endings import reason_of
from swe_argo.steps.agents.program.exchange import Exchange
from swe_argo.steps.agents.program.place import ProgramPlace
from swe_argo.steps.agents.program.printed import PrintedText
from swe_argo.steps.agents.prompts import templates
from swe_argo.steps.agents.task import Task
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.errors import ConfigError

LIMITS = GateLimits(
    allowed=(
        *(("POST", f"{version}{path}") for version in ("/v1", "") for path in ("/chat/completions", "/responses")),
        *(("POST", f"{version}/messages{rest}") for version in ("/v1", "") for rest in ("", "/count_tokens")),
        *(("GET", f"{version}/models{rest}") for version in ("/v1", "") for rest in ("", "/*")),
        *(("HEAD", "/"), ("GET", "/")),
    ),
    printed_bytes=256 << 10,
)
"""What an agent program may ask: a model, in any of its protocols, and which models there are."""
LOOK_S = 30.0
"""The longest wait between two looks at the agent's limits."""


def act(task: Task) -> StopReason:
    """Let the program of ``task.program`` work until it ends, or one of its limits is reached.

    Its calls are in the journal as they are answered, further conversations beside the main one. Raises InfraError,
    ResourceError, ConfigError: also where its files cannot run in the image.
    """
    if task.program is None or task.forwarder is None:
        raise ConfigError("the run has no agent program", field="agent.name")
    recipe, printed = task.program.recipe, PrintedText()
    port = choose_port(task.box)
    instruction = templates.render(task.instruction, task.instance)
    with (
        ProgramPlace(task.box, recipe, instruction, model=task.forwarder.model, port=port) as place,
        Exchange(task, task.forwarder, instruction) as exchange,
        Gate(
            *(task.box, place.command),
            env=place.env,
            cwd=task.instance.workdir,
            limits=LIMITS,
            port=port,
            home=place.home,
        ) as gate,
    ):
        ended: Ended | None = None
        while ended is None:
            for event in gate.poll(min(exchange.left_s, LOOK_S)):
                match event:
                    case GateRequest():
                        exchange.take(event, gate)
                    case Printed():
                        printed.add(event)
                    case Refused():
                        exchange.count_refused()
                    case Ended():
                        ended = event
            if exchange.is_over():
                gate.kill()
        exchange.finish()
        task.journal.printed = printed.text()
        return reason_of(ended, exchange, recipe, task)
