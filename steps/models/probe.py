"""One small call before a run: whether the key, the model and the request are right, and how tools are called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from steps.contracts.agent_spec import agent_of
from steps.contracts.data import RunFile
from steps.contracts.recipe import AgentProgram
from steps.contracts.run_spec import RunSpec
from steps.contracts.trajectory import Metrics, StopReason, Usage
from steps.contracts.wire_protocol import NAMES, WireProtocol
from steps.errors import ConfigError, InfraError, one_line
from steps.models.client import Client, open_model
from steps.models.connection import UNREACHED
from steps.models.images import PIXEL, with_images
from steps.models.protocols.table import WIRES
from steps.models.rate_limits import Unlimited
from steps.models.reply import Message, NoReplyError, Reply, ToolDefinition
from steps.models.request_body import RequestDialect

TOOL: ToolDefinition = {
    "type": "function",
    "function": {
        "name": "report_word",
        "description": "Report a word.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string", "description": "The word to report."}},
            "required": ["word"],
        },
    },
}
WITH_TOOL: list[Message] = [{"role": "user", "content": "Call the tool report_word with the word: ready"}]
WITHOUT: list[Message] = [{"role": "user", "content": "Answer with one word: ready"}]
TOKENS = 1024
"""An answer may take: room for some reasoning. One that has not ended by then is asked for again without a limit."""
RETRIES = 2
"""An endpoint that is only busy answers by then; one that is not there is told soon."""
TIMEOUT_S = 120.0
CONNECT_S = 10.0
"""A network policy that keeps the endpoint away answers nothing: it is told within the minute."""


@dataclass(frozen=True)
class EndpointFacts:
    """What was found."""

    fn_calling: bool | None
    """None where the agent calls no tools."""
    speaks: list[WireProtocol] = field(default_factory=list)
    """Of an agent program's endpoint: the protocols, as far as it has to be asked for them."""
    notices: list[str] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    """What the asking took, and that of earlier plans."""


def probe_for_run(
    spec: RunSpec, *, solves: bool, before: RunFile | None, program: AgentProgram | None = None
) -> EndpointFacts:
    """What a run has to know of its model. Nothing is asked where no model is, or where nothing is left to be solved.

    ``before``: the run as an earlier plan left it; how its tools are called stays, and what is spoken. Raises what
    ``probe`` raises.
    """
    agent = agent_of(spec.agent)
    fn_calling, speaks = (before.fn_calling, before.speaks) if before else (None, [])
    if not solves or not agent.asks_model:
        return EndpointFacts(fn_calling, speaks, usage=before.planning if before else Usage())
    asks_in = WireProtocol(program.recipe.protocol) if program else None
    facts = probe(spec, tools=agent.calls_tools, fn_calling=fn_calling, asks_in=asks_in, speaks=speaks)
    return replace(facts, usage=facts.usage + before.planning) if before else facts


def probe(
    spec: RunSpec,
    *,
    tools: bool,
    fn_calling: bool | None = None,
    asks_in: WireProtocol | None = None,
    speaks: Sequence[WireProtocol] = (),
) -> EndpointFacts:
    """Ask once. ``tools``: whether the agent calls any; ``fn_calling``: how it calls them, where that is settled.

    ``asks_in``: the protocol of an agent program; ``speaks``: those of the endpoint, where that is settled. One that
    does not speak the agent's is asked once more, in chat completions.

    Raises ConfigError in one line with the way out, for whatever would stop every unit: a key, a model, a parameter, an
    address, tools that the endpoint does not take, a limit in money without a price. InfraError: it does not answer.
    """
    llm = spec.llm
    gentle = {
        "num_retries": min(llm.num_retries, RETRIES),
        "timeout": min(llm.timeout, TIMEOUT_S),
        "max_output_tokens": min(llm.max_output_tokens or TOKENS, TOKENS),
    }
    with open_model(spec.model_copy(update={"llm": llm.model_copy(update=gentle)}), gate=Unlimited()) as model:
        model.connection.connect_s = CONNECT_S
        asking = _Probe(spec, model)
        with_calls = _wants_fn_calling(spec, fn_calling) if tools else False
        works = None if with_calls is False else asking.with_tool(with_calls)
        spoken = list(speaks or llm.speaks)
        if asks_in is not None:
            spoken = asking.find_spoken(asks_in, spoken)
        elif works is None:
            asking.without_tools()
        if spec.agent.issue_images:
            asking.with_image()
        asking.price()
        return EndpointFacts(
            bool(works) if tools else None,
            spoken if asks_in else [],
            [*asking.notices, *asking.describe_findings()],
            model.usage,
        )


def _wants_fn_calling(spec: RunSpec, fn_calling: bool | None) -> bool | None:
    """Whether tools are to be called by function calling; None: as the endpoint can."""
    if fn_calling is not None:
        return fn_calling
    setting = spec.agent.use_fn_calling
    return spec.llm.native_tool_calling if setting == "auto" else setting == "true"


class _Probe:
    def __init__(self, spec: RunSpec, model: Client) -> None:
        self._spec, self._model = spec, model
        self.notices: list[str] = []
        self._metrics: Metrics | None = None

    def with_tool(self, required: bool | None) -> bool | None:
        """Whether the model calls a tool that it is offered; None where the endpoint would not have it offered."""
        try:
            reply = self._ask(WITH_TOOL, [TOOL])
        except ConfigError as error:
            if required or error.field != "agent.use_fn_calling":
                raise
            self._tell(f"does not take tools, so {self._agent} calls them in text ({one_line(error.detail, 120)})")
            return None
        called = bool(reply.calls)
        if required:
            if not called:
                self._tell(f"answered in text where it was offered a tool: {self._agent} may get no call from it")
            return True
        how = "by function calling" if called else "in text: it was offered one and did not call it"
        self._tell(f"was asked once: {self._agent} calls tools {how}")
        return called

    def without_tools(self) -> None:
        """Whether it answers at all."""
        self._ask(WITHOUT, None)

    def find_spoken(self, asks_in: WireProtocol, said: list[WireProtocol]) -> list[WireProtocol]:
        """Which protocols serve an agent that asks in ``asks_in``; ``said``: those that are known. Chat completions are
        asked for where the agent's is not spoken, and where token ids are to be recorded: no other protocol tells them.
        """
        chat = WireProtocol.CHAT
        if said and asks_in not in said and chat not in said:
            raise ConfigError(self._neither(asks_in), field="llm.speaks")
        spoken = []
        if asks_in is not chat and (asks_in in said or not said) and self._answers_in(asks_in, surely=bool(said)):
            if not self._spec.llm.logprobs:
                return [asks_in]
            spoken = [asks_in]
        try:
            self.without_tools()
        except ConfigError as error:
            if spoken:
                return spoken
            if asks_in is not chat and error.field == "llm.base_url":
                raise ConfigError(self._neither(asks_in), field=error.field, detail=error.detail) from None
            raise
        if not spoken and asks_in is not chat:
            self.notices.append(
                f"{self._model.endpoint} does not speak {NAMES[asks_in]}, in which {self._agent} asks: its calls are "
                "translated to chat completions"
            )
        return [*spoken, chat]

    def _neither(self, asks_in: WireProtocol) -> str:
        wanted = f"{NAMES[asks_in]}, in which {self._agent} asks"
        if asks_in is WireProtocol.CHAT:
            return f"{self._model.endpoint} does not speak {wanted}"
        return (
            f"{self._model.endpoint} speaks neither {wanted}, nor chat completions, to which that could be translated: "
            "see that --base-url is its address, it mostly ends in /v1"
        )

    def _answers_in(self, protocol: WireProtocol, *, surely: bool) -> bool:
        """Whether a harmless question in this protocol is answered. Where it ``surely`` is spoken, what is wrong is
        raised; else it shows in chat completions."""
        wording = RequestDialect(self._model.where.model, self._model.wording.llm, wire=WIRES[protocol])
        question = WITHOUT[0]["content"]
        body = {"input": question} if protocol is WireProtocol.RESPONSES else {"messages": WITHOUT}
        try:
            answered = self._model.forward(body, wording)
        except (ConfigError, InfraError, NoReplyError) as error:
            if surely and not isinstance(error, NoReplyError):
                raise
            return False
        self._metrics = answered.metrics
        return True

    def with_image(self) -> None:
        """Refuse issues' images where the endpoint takes none."""
        content = with_images(str(WITHOUT[0]["content"]), [PIXEL])
        try:
            self._ask([{"role": "user", "content": content}], None)
        except ConfigError as error:
            reason = f"{self._model.endpoint} takes no images for {self._model.name}: {one_line(error.detail, 200)}"
            raise ConfigError(reason, field="agent.issue_images", detail=error.detail) from None

    def price(self) -> None:
        """Refuse a limit in money where nothing tells what a call costs; tell of half a price."""
        llm = self._spec.llm
        free = {"llm.input_cost_per_token": "completion", "llm.output_cost_per_token": "prompt"}
        priced = [name for name in free if getattr(llm, name.removeprefix("llm.")) is not None]
        agent = self._spec.agent
        wished = agent.max_cost_usd if agent.max_cost_usd != agent_of(agent).defaults.max_cost_usd else None
        limits = {"max_cost_usd": self._spec.max_cost_usd, "agent.max_cost_usd": wished}
        limited = next((name for name, value in limits.items() if value is not None), None)
        if limited and (self._metrics is None or self._metrics.cost_usd is None):
            missing = "counts no tokens" if priced else "tells no cost"
            mend = "leave it out" if priced else f"give the prices, {' and '.join(free)}"
            raise ConfigError(
                f"{self._model.endpoint} {missing}, so this limit could not be kept: {mend}", field=limited
            )
        if len(priced) == 1:
            self.notices.append(f"only {priced[0]} is given: {free[priced[0]]} tokens count as free")

    def describe_findings(self) -> list[str]:
        """What the endpoint did not take of the spec, and is done without."""
        model = self._model
        left_out = sorted(model.wording.without & {"temperature", "stop"})
        lines = [f"{model.endpoint} does not take {name} for {model.name}: it is left out" for name in left_out]
        if self._spec.llm.logprobs and self._metrics:
            missing = {"logprobs": self._metrics.logprobs, "token ids": self._metrics.completion_token_ids}
            lines += [
                f"{model.endpoint} was asked for {name} and told none" for name in missing if missing[name] is None
            ]
        return lines

    @property
    def _agent(self) -> str:
        return agent_of(self._spec.agent).name

    def _tell(self, words: str) -> None:
        self.notices.append(f"{self._model.name} {words}")

    def _ask(self, messages: list[Message], tools: list[ToolDefinition] | None) -> Reply:
        model = self._model
        try:
            reply = model.ask(messages, tools=tools)
            extra = reply.metrics.extra
            if extra and extra.finish_reason == "length" and not reply.calls and model.wording.llm.max_output_tokens:
                model.wording.llm = self._spec.llm
                reply = model.ask(messages, tools=tools)
        except NoReplyError as error:
            if error.reason is StopReason.CONTEXT_OVERFLOW:
                raise ConfigError(
                    f"{model.endpoint} has no room for an answer: {one_line(error.detail, 200)}",
                    field="llm.max_output_tokens",
                ) from None
            raise ConfigError(
                f"{model.endpoint} did not answer a harmless question: {error}", field="agent.model"
            ) from None
        except InfraError as error:
            line = f"{error.reason}: see that it runs, and that llm.base_url is its address"
            if UNREACHED in error.detail:
                line += "; on a cluster the chart's network.allow must let steps through to it"
            raise InfraError(error.failure_class, line, detail=error.detail) from None
        except ConfigError as error:
            raise self._with_models(error) from None
        self._metrics = reply.metrics
        return reply

    def _with_models(self, error: ConfigError) -> ConfigError:
        """An unknown model is told with those that there are."""
        if error.field != "agent.model":
            return error
        names = self._model.connection.models(timeout_s=10.0)
        if not names:
            return error
        name = self._model.name
        near = f"; write openai/{name}" if name in names else ""
        offered = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        reason = error.reason.removeprefix(f"{error.field}: ")
        return ConfigError(f"{reason}{near}; it has: {offered}", field=error.field, detail=error.detail)
