"""Test of an endpoint's protocols for an agent program, with one small call in each candidate."""

from __future__ import annotations

from collections.abc import Sequence

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.wire_protocol import NAMES, WireProtocol
from swe_argo.steps.errors import ConfigError, one_line
from swe_argo.steps.models.call import NotSpokenError
from swe_argo.steps.models.endpoint import wire_name
from swe_argo.steps.models.probing import EndpointFacts, Probing, open_for_probing
from swe_argo.steps.models.protocols.table import WIRES
from swe_argo.steps.models.request_body import RequestDialect
from swe_argo.steps.models.small_request import REQUESTS

CHAT = WireProtocol.CHAT
HELPER = "agent.helper_model"


def probe_for_program(spec: RunSpec, asks_in: WireProtocol, settled: Sequence[WireProtocol] = ()) -> EndpointFacts:
    """Return the protocols for a program that uses ``asks_in``: that one, or chat completions to translate to.

    Recorded token ids need chat completions, too: no other protocol returns them. ``settled``: the protocols that an
    earlier plan of this run found; ``llm.speaks`` of the spec overrides them. Raises what ``probe`` raises, and
    ConfigError if neither protocol works.
    """
    with open_for_probing(spec) as model:
        asking = _ProgramProbe(spec, model)
        declared = list(spec.llm.speaks or settled)
        spoken = asking.keep(asks_in, declared) if declared else asking.find(asks_in)
        if spec.agent.helper_model:
            asking.helper(spec.agent.helper_model, asks_in if asks_in in spoken else CHAT)
        return asking.facts(speaks=spoken)


class _ProgramProbe(Probing):
    def keep(self, asks_in: WireProtocol, declared: list[WireProtocol]) -> list[WireProtocol]:
        """Return the protocols among ``declared`` that the program can use, after a test request in the first one.

        Raises ConfigError if there is none, or if the endpoint does not support it.
        """
        serves = [protocol for protocol in (asks_in, CHAT) if protocol in declared]
        if not serves:
            raise self._neither(asks_in, field="llm.speaks")
        try:
            self._ask(serves[0])
        except NotSpokenError as error:
            raise ConfigError(
                f"{self.model.endpoint} does not speak {NAMES[serves[0]]}: {one_line(str(error), 200)}",
                field="llm.speaks" if self.spec.llm.speaks else "llm.base_url",
            ) from None
        self._tell_translated(asks_in, serves)
        return list(dict.fromkeys(serves))

    def find(self, asks_in: WireProtocol) -> list[WireProtocol]:
        """Return the usable protocols found by test requests; chat completions are tested only if needed.

        Raises ConfigError if neither the program's protocol nor chat completions work.
        """
        spoken = [asks_in] if asks_in is not CHAT and self._serves(asks_in) else []
        if not spoken or self.spec.llm.logprobs:
            try:
                self._ask(CHAT)
                spoken.append(CHAT)
            except NotSpokenError as error:
                if not spoken:
                    raise self._neither(asks_in, str(error)) from None
            except ConfigError:
                if not spoken:
                    raise
        self._tell_translated(asks_in, spoken)
        return spoken

    def helper(self, name: str, protocol: WireProtocol) -> None:
        """Check that the endpoint serves the helper model ``name``. Raises ConfigError if not."""
        try:
            self._ask(protocol, wire_name(name))
        except NotSpokenError as error:
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
        except NotSpokenError:
            return False
        except ConfigError as error:
            if error.failure_class is FailureClass.MODEL_ACCESS or error.field == "agent.model":
                raise
            self.notices.append(error.reason)
            return False
        return True

    def _ask(self, protocol: WireProtocol, name: str | None = None) -> None:
        """Send a test request, without tools if the model supports none.

        Raises NotSpokenError if the endpoint does not support the protocol, else what ``probe`` raises.
        """
        wording = RequestDialect(name or self.model.where.model, self.model.wording.llm, wire=WIRES[protocol])
        request = REQUESTS[protocol]
        with self.explain_failures():
            try:
                answered = self.model.probe(request, wording)
            except ConfigError as error:
                if error.field != "agent.use_fn_calling":
                    raise
                answered = self.model.probe({name: request[name] for name in request if name != "tools"}, wording)
                self.notices.append(
                    f"{self.model.endpoint} accepts no tools for {wording.model}, which {self.agent} may need: start "
                    f"its server with tool calls ({one_line(error.detail, 120)})"
                )
            if isinstance(answered.outcome, Exception):
                raise answered.outcome
        self.metrics = answered.metrics
        self.model.wording.without |= wording.without

    def _tell_translated(self, asks_in: WireProtocol, spoken: list[WireProtocol]) -> None:
        """Add a notice if the program's protocol is not supported, so that its calls are translated."""
        if asks_in not in spoken:
            self.notices.append(
                f"{self.model.endpoint} does not speak {NAMES[asks_in]}, which {self.agent} uses: its calls are "
                f"translated to {NAMES[CHAT]}"
            )

    def _neither(self, asks_in: WireProtocol, declared: str = "", field: str = "llm.base_url") -> ConfigError:
        """Return the error of an endpoint that supports neither the program's protocol nor chat completions.

        ``declared`` is the endpoint's response, if any; ``field`` is the spec's field to change.
        """
        protocol_text = f"{NAMES[asks_in]}, which {self.agent} uses"
        lacks = (
            f"does not speak {protocol_text}"
            if asks_in is CHAT
            else f"speaks neither {protocol_text}, nor {NAMES[CHAT]}, to which calls could be translated"
        )
        words = f" ({one_line(declared, 200)})" if declared else ""
        where = "" if field == "llm.speaks" else ": check --base-url, which usually ends in /v1"
        return ConfigError(f"{self.model.endpoint} {lacks}{words}{where}", field=field)
