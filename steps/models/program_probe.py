"""Test of an endpoint's protocols for an agent program, with one small call in each candidate."""

from __future__ import annotations

from collections.abc import Sequence

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.wire_protocol import NAMES, WireProtocol
from swe_argo.steps.errors import ConfigError, one_line
from swe_argo.steps.models.call import UnsupportedProtocolError
from swe_argo.steps.models.endpoint import wire_name
from swe_argo.steps.models.probing import EndpointFacts, Probing, open_for_probing
from swe_argo.steps.models.protocols.table import WIRES
from swe_argo.steps.models.request_body import RequestDialect
from swe_argo.steps.models.small_request import REQUESTS

CHAT = WireProtocol.CHAT
HELPER = "agent.helper_model"


def probe_for_program(
    spec: RunSpec, program_protocol: WireProtocol, earlier_protocols: Sequence[WireProtocol] = ()
) -> EndpointFacts:
    """Return the protocols for a program that uses ``program_protocol``: that one, or chat completions to translate to.

    Recorded token ids need chat completions, too: no other protocol returns them. ``earlier_protocols``: the protocols
    that an earlier plan of this run found; ``llm.speaks`` of the spec overrides them. Raises what ``probe`` raises, and
    ConfigError if neither protocol works.
    """
    with open_for_probing(spec) as model:
        probe = _ProgramProbe(spec, model)
        declared = list(spec.llm.speaks or earlier_protocols)
        spoken = (
            probe.check_declared(program_protocol, declared) if declared else probe.discover_protocols(program_protocol)
        )
        if spec.agent.helper_model:
            probe.helper(spec.agent.helper_model, program_protocol if program_protocol in spoken else CHAT)
        return probe.facts(speaks=spoken)


class _ProgramProbe(Probing):
    def check_declared(self, program_protocol: WireProtocol, declared: list[WireProtocol]) -> list[WireProtocol]:
        """Return the protocols among ``declared`` that the program can use, after a test request in the first one.

        Raises ConfigError if there is none, or if the endpoint does not support it.
        """
        serves = [protocol for protocol in (program_protocol, CHAT) if protocol in declared]
        if not serves:
            raise self._unsupported_error(program_protocol, field="llm.speaks")
        try:
            self._ask(serves[0])
        except UnsupportedProtocolError as error:
            raise ConfigError(
                f"{self.model.endpoint} does not speak {NAMES[serves[0]]}: {one_line(str(error), 200)}",
                field="llm.speaks" if self.spec.llm.speaks else "llm.base_url",
            ) from None
        self._tell_translated(program_protocol, serves)
        return list(dict.fromkeys(serves))

    def discover_protocols(self, program_protocol: WireProtocol) -> list[WireProtocol]:
        """Return the usable protocols found by test requests; chat completions are tested only if needed.

        Raises ConfigError if neither the program's protocol nor chat completions work.
        """
        spoken = [program_protocol] if program_protocol is not CHAT and self._serves(program_protocol) else []
        if not spoken or self.spec.llm.logprobs:
            try:
                self._ask(CHAT)
                spoken.append(CHAT)
            except UnsupportedProtocolError as error:
                if not spoken:
                    raise self._unsupported_error(program_protocol, str(error)) from None
            except ConfigError:
                if not spoken:
                    raise
        self._tell_translated(program_protocol, spoken)
        return spoken

    def helper(self, name: str, protocol: WireProtocol) -> None:
        """Check that the endpoint serves the helper model ``name``. Raises ConfigError if not."""
        try:
            self._ask(protocol, wire_name(name))
        except UnsupportedProtocolError as error:
            raise ConfigError(f"{self.model.endpoint} does not answer for {name}: {error}", field=HELPER) from None
        except ConfigError as error:
            if error.field != "agent.model":
                raise
            reason = error.reason.removeprefix(f"{error.field}: ")
            raise ConfigError(reason, field=HELPER, detail=error.detail) from None
        self.notices.append(f"helpers of {self.agent} are answered by {name}")

    def _serves(self, protocol: WireProtocol) -> bool:
        """Return whether a protocol works. Raises ConfigError if the key or model is refused; others become notices."""
        try:
            self._ask(protocol)
        except UnsupportedProtocolError:
            return False
        except ConfigError as error:
            if error.failure_class is FailureClass.MODEL_ACCESS or error.field == "agent.model":
                raise
            self.notices.append(error.reason)
            return False
        return True

    def _ask(self, protocol: WireProtocol, name: str | None = None) -> None:
        """Send a test request, without tools if the model supports none.

        Raises UnsupportedProtocolError if the endpoint does not support the protocol, else what ``probe`` raises.
        """
        dialect = RequestDialect(
            name or self.model.resolved_endpoint.model, self.model.dialect.llm, wire=WIRES[protocol]
        )
        request = REQUESTS[protocol]
        with self.explain_failures():
            try:
                answered = self.model.probe(request, dialect)
            except ConfigError as error:
                if error.field != "agent.use_fn_calling":
                    raise
                answered = self.model.probe({name: request[name] for name in request if name != "tools"}, dialect)
                self.notices.append(
                    f"{self.model.endpoint} accepts no tools for {dialect.model}, which {self.agent} may need: start "
                    f"its server with tool calls ({one_line(error.detail, 120)})"
                )
            if isinstance(answered.outcome, Exception):
                raise answered.outcome
        self.metrics = answered.metrics
        self.model.dialect.refused_parameters |= dialect.refused_parameters

    def _tell_translated(self, program_protocol: WireProtocol, spoken: list[WireProtocol]) -> None:
        """Add a notice if the program's protocol is not supported, so that its calls are translated."""
        if program_protocol not in spoken:
            self.notices.append(
                f"{self.model.endpoint} does not speak {NAMES[program_protocol]}, which {self.agent} uses: its calls "
                f"are translated to {NAMES[CHAT]}"
            )

    def _unsupported_error(
        self, program_protocol: WireProtocol, response_text: str = "", field: str = "llm.base_url"
    ) -> ConfigError:
        """Return the error of an endpoint that supports neither the program's protocol nor chat completions.

        ``response_text`` is the endpoint's response, if any; ``field`` is the spec's field to change.
        """
        protocol_text = f"{NAMES[program_protocol]}, which {self.agent} uses"
        lacks = (
            f"does not speak {protocol_text}"
            if program_protocol is CHAT
            else f"speaks neither {protocol_text}, nor {NAMES[CHAT]}, to which calls could be translated"
        )
        words = f" ({one_line(response_text, 200)})" if response_text else ""
        where = "" if field == "llm.speaks" else ": check --base-url, which usually ends in /v1"
        return ConfigError(f"{self.model.endpoint} {lacks}{words}{where}", field=field)
