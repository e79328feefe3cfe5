"""Test calls to the model endpoint before a run, and clear errors for their failures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.trajectory import Metrics, StopReason, Usage
from swe_argo.steps.contracts.wire_protocol import WireProtocol
from swe_argo.steps.errors import ConfigError, InfraError, one_line
from swe_argo.steps.models.client import Client, open_model
from swe_argo.steps.models.connection import UNREACHED
from swe_argo.steps.models.rate_limits import Unlimited
from swe_argo.steps.models.reply import NoReplyError
from swe_argo.steps.models.small_request import small_settings

CONNECT_S = 10.0
"""Timeout of connecting. A network policy that blocks the endpoint drops packets; this reports it within a minute."""


def open_for_probing(spec: RunSpec) -> Client:
    """Return a client for few, small and quick test requests."""
    model = open_model(spec.model_copy(update={"llm": small_settings(spec.llm)}), limiter=Unlimited())
    model.is_probe = True
    model.connection.connect_s = CONNECT_S
    return model


@dataclass(frozen=True)
class EndpointFacts:
    """Facts about a run's endpoint that the test found."""

    fn_calling: bool | None
    """None if the agent calls no tools."""
    speaks: list[WireProtocol] = field(default_factory=list)
    """Protocols of an agent program's endpoint, as far as they were tested."""
    notices: list[str] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    """Usage of the test requests and of earlier plans."""


class Probing:
    """State of an endpoint test: requests so far and their findings."""

    def __init__(self, spec: RunSpec, model: Client) -> None:
        self.spec, self.model = spec, model
        self.notices: list[str] = []
        self.metrics: Metrics | None = None
        """Metrics of the last answer."""

    @property
    def agent(self) -> str:
        """Return the agent's name."""
        return agent_of(self.spec.agent).name

    def facts(self, *, fn_calling: bool | None = None, speaks: list[WireProtocol] | None = None) -> EndpointFacts:
        """Return all findings. Raises ConfigError if a cost limit cannot be enforced."""
        self._check_cost_limit()
        notices = [*self.notices, *self._describe_findings()]
        return EndpointFacts(fn_calling, speaks or [], notices, self.model.usage)

    def _check_cost_limit(self) -> None:
        """Refuse a cost limit if the cost of a call is unknown; add a notice if only one price is set."""
        llm = self.spec.llm
        free_tokens = {"llm.input_cost_per_token": "completion", "llm.output_cost_per_token": "prompt"}
        priced = [name for name in free_tokens if getattr(llm, name.removeprefix("llm.")) is not None]
        agent = self.spec.agent
        # The agent's default limit is not the user's wish: it may go unenforced.
        max_cost = agent.max_cost_usd if agent.max_cost_usd != agent_of(agent).defaults.max_cost_usd else None
        limits = {"max_cost_usd": self.spec.max_cost_usd, "agent.max_cost_usd": max_cost}
        limited = next((name for name, value in limits.items() if value is not None), None)
        if limited and (self.metrics is None or self.metrics.cost_usd is None):
            missing = "does not report tokens" if priced else "does not report costs"
            mend = "remove the limit" if priced else f"give the prices, {' and '.join(free_tokens)}"
            raise ConfigError(
                f"{self.model.endpoint} {missing}, so this limit cannot be enforced: {mend}", field=limited
            )
        if len(priced) == 1:
            self.notices.append(f"only {priced[0]} is given: {free_tokens[priced[0]]} tokens count as free")

    def _describe_findings(self) -> list[str]:
        """Return notices about settings of the spec that the endpoint does not support."""
        model = self.model
        left_out = sorted(model.dialect.refused_parameters & {"temperature", "stop"})
        lines = [f"{model.endpoint} does not accept {name} for {model.name}: requests omit it" for name in left_out]
        if self.spec.llm.logprobs and self.metrics:
            missing = {"logprobs": self.metrics.logprobs, "token ids": self.metrics.completion_token_ids}
            lines += [
                f"{model.endpoint} did not return the requested {name}" for name in missing if missing[name] is None
            ]
        return lines

    @contextmanager
    def explain_failures(self) -> Iterator[None]:
        """Convert failures inside the block to errors that explain why every unit would fail."""
        try:
            yield
        except NoReplyError as error:
            if error.reason is StopReason.CONTEXT_OVERFLOW:
                raise ConfigError(
                    f"{self.model.endpoint} leaves no room for an answer: {one_line(error.detail, 200)}",
                    field="llm.max_output_tokens",
                ) from None
            raise ConfigError(
                f"{self.model.endpoint} did not answer the test request: {error}", field="agent.model"
            ) from None
        except InfraError as error:
            line = f"{error.reason}: check that it runs and that llm.base_url is its address"
            if UNREACHED in error.detail:
                line += "; on a cluster the chart's network.allow must let steps through to it"
            raise InfraError(error.failure_class, line, detail=error.detail) from None
        except ConfigError as error:
            raise self._add_model_names(error) from None

    def _add_model_names(self, error: ConfigError) -> ConfigError:
        """Return the error of an unknown model with the endpoint's model names added."""
        if error.field != "agent.model":
            return error
        names = self.model.connection.models(timeout_s=10.0)
        if not names:
            return error
        name = self.model.name
        # The endpoint lists the full name, from which a prefix was removed as LiteLLM's.
        near = f"; write openai/{name}" if name in names else ""
        offered = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        reason = error.reason.removeprefix(f"{error.field}: ")
        return ConfigError(f"{reason}{near}; it has: {offered}", field=error.field, detail=error.detail)
