"""Test of the model endpoint before a run: key, model, request parameters, and the way tools are called."""

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
    """Return the facts about a run's model endpoint. Sends no request if no model or no solving is needed.

    ``before``: the run as an earlier plan left it; its way of calling tools and its protocols are kept. Raises what
    ``probe`` and ``probe_for_program`` raise.
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
    """Test the endpoint. ``tools``: the agent calls tools; ``fn_calling``: how it calls them, if already decided.

    Raises ConfigError in one line with the way out if every unit would fail: wrong key, model, parameter or address,
    unsupported tools, a cost limit without prices. Raises InfraError if the endpoint does not answer.
    """
    with open_for_probing(spec) as model:
        model_probe = _Probe(spec, model)
        with_calls = _wants_fn_calling(spec, fn_calling) if tools else False
        works = None if with_calls is False else model_probe.with_tool(with_calls)
        if works is None:
            model_probe.without_tools()
        if spec.agent.issue_images:
            model_probe.with_image()
        return model_probe.facts(fn_calling=bool(works) if tools else None)


def _wants_fn_calling(spec: RunSpec, fn_calling: bool | None) -> bool | None:
    """Return whether tools must be called by function calling; None if the endpoint decides."""
    if fn_calling is not None:
        return fn_calling
    setting = spec.agent.use_fn_calling
    return spec.llm.native_tool_calling if setting == "auto" else setting == "true"


class _Probe(Probing):
    def with_tool(self, required: bool | None) -> bool | None:
        """Return whether the model calls an offered tool; None if the endpoint does not support tools.

        ``required``: the spec requires function calling, so that None becomes a ConfigError.
        """
        try:
            reply = self._ask(WITH_TOOL, [TOOL])
        except ConfigError as error:
            if required or error.field != "agent.use_fn_calling":
                raise
            self._add_notice(
                f"does not accept tools, so {self.agent} calls them in text ({one_line(error.detail, 120)})"
            )
            return None
        called = bool(reply.calls)
        if required:
            if not called:
                self._add_notice(f"answered in text although a tool was offered: {self.agent} may get no calls from it")
            return True
        how = "by function calling" if called else "in text, because the model did not call the offered tool"
        self._add_notice(f"test request succeeded: {self.agent} calls tools {how}")
        return called

    def without_tools(self) -> None:
        """Check that the endpoint answers without tools. Raises ConfigError or InfraError if not."""
        self._ask(WITHOUT, None)

    def with_image(self) -> None:
        """Check that the endpoint accepts images. Raises ConfigError if not."""
        content = with_images(str(WITHOUT[0]["content"]), [PIXEL])
        try:
            self._ask([{"role": "user", "content": content}], None)
        except ConfigError as error:
            reason = f"{self.model.endpoint} accepts no images for {self.model.name}: {one_line(error.detail, 200)}"
            raise ConfigError(reason, field="agent.issue_images", detail=error.detail) from None

    def _add_notice(self, words: str) -> None:
        self.notices.append(f"{self.model.name} {words}")

    def _ask(self, messages: list[Message], tools: list[ToolDefinition] | None) -> Reply:
        """Send a test request. Raises ConfigError or InfraError with an explanation if it fails."""
        model = self.model
        with self.explain_failures():
            reply = model.ask(messages, tools=tools)
            extra = reply.metrics.extra
            if extra and extra.finish_reason == "length" and not reply.calls and model.dialect.llm.max_output_tokens:
                # Reasoning used up the test's small token limit: ask again with the spec's own limit.
                model.dialect.llm = self.spec.llm
                reply = model.ask(messages, tools=tools)
        self.metrics = reply.metrics
        return reply
