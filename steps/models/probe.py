"""One small call before a run: whether the key, the model and the request are right, and how tools are called."""

from __future__ import annotations

from dataclasses import replace

from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.contracts.recipe import AgentProgram
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.trajectory import Usage
from swe_argo.steps.contracts.wire_protocol import WireProtocol
from swe_argo.steps.errors import ConfigError, one_line
from swe_argo.steps.models.images import PIXEL, with_images
from swe_argo.steps.models.probing import EndpointFacts, Probing, open_for_probing
from swe_argo.steps.models.program_probe import probe_for_program
from swe_argo.steps.models.reply import Message, Reply, ToolDefinition
from swe_argo.steps.models.small_request import TOOL, WITH_TOOL, WITHOUT


def probe_for_run(
    spec: RunSpec, *, solves: bool, before: RunFile | None, program: AgentProgram | None = None
) -> EndpointFacts:
    """What a run has to know of its model. Nothing is asked where no model is, or where nothing is left to be solved.

    ``before``: the run as an earlier plan left it; how its tools are called stays, and in which protocols it is asked.
    Raises what ``probe`` and ``probe_for_program`` raise.
    """
    agent = agent_of(spec.agent)
    fn_calling, speaks = (before.fn_calling, before.speaks) if before else (None, [])
    if not solves or not agent.asks_model:
        return EndpointFacts(fn_calling, speaks, usage=before.planning if before else Usage())
    if program is None:
        facts = probe(spec, tools=agent.calls_tools, fn_calling=fn_calling)
    else:
        facts = probe_for_program(spec, WireProtocol(program.recipe.protocol), speaks)
    return replace(facts, usage=facts.usage + before.planning) if before else facts


def probe(spec: RunSpec, *, tools: bool, fn_calling: bool | None = None) -> EndpointFacts:
    """Ask once. ``tools``: whether the agent calls any; ``fn_calling``: how it calls them, where that is settled.

    Raises ConfigError in one line with the way out, for whatever would stop every unit: a key, a model, a parameter, an
    address, tools that the endpoint does not take, a limit in money without a price. InfraError: it does not answer.
    """
    with open_for_probing(spec) as model:
        asking = _Probe(spec, model)
        with_calls = _wants_fn_calling(spec, fn_calling) if tools else False
        works = None if with_calls is False else asking.with_tool(with_calls)
        if works is None:
            asking.without_tools()
        if spec.agent.issue_images:
            asking.with_image()
        return asking.facts(fn_calling=bool(works) if tools else None)


def _wants_fn_calling(spec: RunSpec, fn_calling: bool | None) -> bool | None:
    """Whether tools are to be called by function calling; None: as the endpoint can."""
    if fn_calling is not None:
        return fn_calling
    setting = spec.agent.use_fn_calling
    return spec.llm.native_tool_calling if setting == "auto" else setting == "true"


class _Probe(Probing):
    def with_tool(self, required: bool | None) -> bool | None:
        """Whether the model calls a tool that it is offered; None where the endpoint would not have it offered."""
        try:
            reply = self._ask(WITH_TOOL, [TOOL])
        except ConfigError as error:
            if required or error.field != "agent.use_fn_calling":
                raise
            self._tell(f"does not take tools, so {self.agent} calls them in text ({one_line(error.detail, 120)})")
            return None
        called = bool(reply.calls)
        if required:
            if not called:
                self._tell(f"answered in text where it was offered a tool: {self.agent} may get no call from it")
            return True
        how = "by function calling" if called else "in text: it was offered one and did not call it"
        self._tell(f"was asked once: {self.agent} calls tools {how}")
        return called

    def without_tools(self) -> None:
        """Whether it answers at all."""
        self._ask(WITHOUT, None)

    def with_image(self) -> None:
        """Refuse issues' images where the endpoint takes none."""
        content = with_images(str(WITHOUT[0]["content"]), [PIXEL])
        try:
            self._ask([{"role": "user", "content": content}], None)
        except ConfigError as error:
            reason = f"{self.model.endpoint} takes no images for {self.model.name}: {one_line(error.detail, 200)}"
            raise ConfigError(reason, field="agent.issue_images", detail=error.detail) from None

    def _tell(self, words: str) -> None:
        self.notices.append(f"{self.model.name} {words}")

    def _ask(self, messages: list[Message], tools: list[ToolDefinition] | None) -> Reply:
        model = self.model
        with self.explain_failures():
            reply = model.ask(messages, tools=tools)
            extra = reply.metrics.extra
            if extra and extra.finish_reason == "length" and not reply.calls and model.wording.llm.max_output_tokens:
                model.wording.llm = self.spec.llm
                reply = model.ask(messages, tools=tools)
        self.metrics = reply.metrics
        return reply
