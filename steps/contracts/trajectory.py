"""What an agent did, in ATIF, the agent trajectory interchange format that Harbor defines (harbor.models.trajectories).

The classes are ATIF's own, with the same fields; what ATIF leaves to its producers stands in ``extra``, typed here.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from swe_argo.steps.contracts.record import AnyText, Part, Place, Record, finite, to_json

# -- numbers that an endpoint reports ----------------------------------------------------------------------------------

MOST_TOKENS = 10**9
"""Tokens of one call: a count above is an error of the endpoint."""
MOST_USD = 1e6
"""Dollars of one call, likewise."""


_ROUNDING = 1e-3
"""By how much the log probability of a sure token may be above 0."""


def token_count(value: object, most: int = MOST_TOKENS) -> int | None:
    """Return the count of tokens that an endpoint reports; None if it cannot be one. Some endpoints write text."""
    number = finite(value)
    return int(number) if number is not None and 0 <= number <= most else None


def dollars(value: object, most: float = MOST_USD) -> float | None:
    """Return the cost that an endpoint reports; None if it cannot be one."""
    number = finite(value)
    return number if number is not None and 0 <= number <= most else None


def _log_probabilities(values: object) -> list[float] | None:
    """Return one for each token; None if any is missing or wrong: some servers omit it for a token that they forced."""
    if not isinstance(values, list):
        return None
    numbers = [number for value in values if (number := finite(value)) is not None and -1e9 < number <= _ROUNDING]
    return numbers if len(numbers) == len(values) else None


def _token_ids(values: object) -> list[object] | None:
    """Return None if any number is no id. Anything else than numbers is left to pydantic to refuse."""
    if not isinstance(values, list):
        return None
    wrong = (isinstance(value, int | float) and not (type(value) is int and value >= 0) for value in values)
    return None if any(wrong) else values


def _at_most_prompt(cached: int | None, info: ValidationInfo) -> int | None:
    prompt = info.data.get("prompt_tokens")
    return cached if cached is None or prompt is None else min(cached, prompt)


Tokens = Annotated[int | None, BeforeValidator(token_count)]
Dollars = Annotated[float | None, BeforeValidator(dollars)]
_MOST_IN_ALL = 2**53
"""Sums stay below: JSON's readers keep whole numbers exactly up to it."""
TokenSum = Annotated[int, BeforeValidator(lambda value: token_count(value, _MOST_IN_ALL) or 0)]
DollarSum = Annotated[float | None, BeforeValidator(lambda value: dollars(value, _MOST_IN_ALL))]


class StopReason(StrEnum):
    """Why an agent stopped. Each is the agent's own doing, or a limit that was set; the patch it had is graded."""

    FINISHED = "finished"
    MAX_STEPS = "max_steps"
    """It finished only when it was told that its steps are used up."""
    ABSOLUTE_STEPS = "absolute_steps"
    """It did not finish even then."""
    TIMEOUT = "timeout"
    CALL_TIMEOUT = "call_timeout"
    """One call of the model took longer than it may, again and again."""
    CONTEXT_LIMIT = "context_limit"
    """The conversation reached max_token_limit."""
    CONTEXT_OVERFLOW = "context_overflow"
    """The endpoint refused the conversation as too long."""
    REQUEST_REFUSED = "request_refused"
    """The endpoint refused a conversation that it had taken so far, twice and in words that do not tell why."""
    TOKEN_LIMIT = "token_limit"  # noqa: S105 - no password
    """max_total_tokens were used."""
    COST_LIMIT = "cost_limit"
    MALFORMED = "malformed"
    """Answer after answer held no call that could be made."""
    EMPTY_ANSWER = "empty_answer"
    """Answer after answer held nothing at all."""
    REFUSAL = "refusal"
    CONTENT_FILTER = "content_filter"
    SANDBOX_BROKEN = "sandbox_broken"
    """It broke the machine that it worked in; nothing outside of that machine knows of a cause."""
    AGENT_CRASHED = "agent_crashed"
    """Of an agent program: it ended by itself with an exit code that says it failed."""
    AGENT_KILLED = "agent_killed"
    """Of an agent program: a signal ended it, and no limit of ours."""
    NO_CALLS = "no_calls"
    """Of an agent program: it ended without having asked the model anything."""
    ERROR_LOOP = "error_loop"
    """Of an agent program: it asked again and again for what was refused."""
    WAITING = "waiting"
    """Of an agent program: it neither asked, nor printed, nor computed: it waits for a terminal or a person."""
    OUTPUT_FLOOD = "output_flood"
    """Of an agent program: it printed more than it may."""
    HOME_FLOOD = "home_flood"
    """Of an agent program: it wrote more into its HOME than it may."""
    INTERRUPTED = "interrupted"
    """The machine failed under it: only in the trajectory that a failed try leaves."""


ENDED_BY_ENDPOINT = frozenset({StopReason.REQUEST_REFUSED, StopReason.CONTEXT_OVERFLOW, StopReason.CONTENT_FILTER})
"""The endpoint did not answer what the conversation had become."""
MALFORMED_REQUEST = "our check finds the request malformed"
"""With this begin the words of a refusal that is no wonder: it says nothing of the endpoint."""
EARLY_TURNS = 2
"""At so many turns such an end says more of the endpoint than of the agent, where it is that of many units."""


class Usage(Part):
    """What the calls of a model took, together."""

    calls: int = 0
    """Calls that were answered."""
    requests: int = 0
    """Requests that were sent: the calls, and those before them that failed."""
    prompt_tokens: TokenSum = 0
    cached_tokens: TokenSum = 0
    """Of the prompt tokens."""
    completion_tokens: TokenSum = 0
    reasoning_tokens: TokenSum = 0
    """Of the completion tokens."""
    cost_usd: DollarSum = None
    """None where no price is known."""
    seconds: float = 0.0
    """Spent waiting for answers."""

    _cached = field_validator("cached_tokens")(_at_most_prompt)

    def __add__(self, other: Usage) -> Usage:
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return Usage(
            calls=self.calls + other.calls,
            requests=self.requests + other.requests,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost_usd=sum(costs) if costs else None,
            seconds=round(self.seconds + other.seconds, 3),
        )

    def __sub__(self, other: Usage) -> Usage:
        """What is left without ``other``, which is a part of it."""
        return Usage(
            calls=self.calls - other.calls,
            requests=self.requests - other.requests,
            prompt_tokens=self.prompt_tokens - other.prompt_tokens,
            cached_tokens=self.cached_tokens - other.cached_tokens,
            completion_tokens=self.completion_tokens - other.completion_tokens,
            reasoning_tokens=self.reasoning_tokens - other.reasoning_tokens,
            cost_usd=None if self.cost_usd is None else max(0.0, self.cost_usd - (other.cost_usd or 0.0)),
            seconds=round(self.seconds - other.seconds, 3),
        )


# -- ATIF ------------------------------------------------------------------------------------------------------------


class ToolCall(Part):
    """A call of a tool."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: dict[str, Any] | None = None


class ResultExtra(Part):
    """What is known of an action beside what the agent saw of it."""

    exit_code: int | None = None
    timed_out: bool = False
    seconds: float = 0.0
    cut: bool = False
    """Whether the agent saw less than there was."""
    recorded: AnyText | None = None
    """In a replay: what was observed then, where it was something else."""


class Result(Part):
    """What came of a call, as the agent saw it."""

    source_call_id: str | None = None
    content: AnyText | None = None
    extra: ResultExtra | None = None


class Observation(Part):
    """What came of the calls of a turn."""

    results: list[Result]


class MetricsExtra(Part):
    """What is recorded of a call beside ATIF's own fields."""

    reasoning_tokens: Tokens = None
    seconds: float = 0.0
    finish_reason: str | None = None
    request_id: str | None = None
    fingerprint: str | None = None
    """Which weights answered, where the endpoint tells (system_fingerprint)."""
    requests: int = 1
    """1, and one for each that failed before the answer came."""
    shared_prompt_ids: int | None = None
    """So many leading ids of the prompt are those of the call before (its prompt, then its completion): they are left
    out of prompt_token_ids, or a trajectory would grow with the square of its turns. ``export`` writes them whole."""


class Metrics(Part):
    """The tokens and the cost of one call of the model, and the token ids if the endpoint reports them.

    A number that cannot be right is unknown (None), whoever reported or stored it; so is a list that holds one.
    """

    prompt_tokens: Tokens = None
    completion_tokens: Tokens = None
    cached_tokens: Tokens = None
    """At most ``prompt_tokens``."""
    cost_usd: Dollars = None
    prompt_token_ids: Annotated[list[int] | None, BeforeValidator(_token_ids)] = None
    completion_token_ids: Annotated[list[int] | None, BeforeValidator(_token_ids)] = None
    logprobs: Annotated[list[float] | None, BeforeValidator(_log_probabilities)] = None
    extra: MetricsExtra | None = None

    _cached = field_validator("cached_tokens")(_at_most_prompt)


class Turn(Part):
    """A step of ATIF: something said, by the system, the user, or the agent with its calls and what came of them."""

    step_id: int = Field(ge=1)
    timestamp: str | None = None
    source: Literal["system", "user", "agent"]
    model_name: str | None = None
    message: AnyText
    reasoning_content: AnyText | None = None
    tool_calls: list[ToolCall] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    llm_call_count: int | None = None
    """Of an agent's turn: 1, or 0 where no model was asked (a replay)."""
    extra: dict[str, Any] | None = None


class AgentExtra(Part):
    """How the agent worked."""

    scaffold: str | None = None
    """Of agent replay: whose tools it used."""
    format: Literal["function_calling", "text"] | None = None
    endpoint: str | None = None
    temperature: float | None = None


class AgentInfo(Part):
    """Who worked."""

    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None
    extra: AgentExtra | None = None


class FinalMetrics(Part):
    """The sums over all turns, those of other attempts in ``subagent_trajectories`` included."""

    total_prompt_tokens: TokenSum | None = None
    total_completion_tokens: TokenSum | None = None
    total_cached_tokens: TokenSum | None = None
    total_cost_usd: DollarSum = None
    total_steps: int | None = None


class TrajectoryExtra(Part):
    """What ATIF has no field for."""

    instance_id: str
    attempt: int
    stop_reason: StopReason
    usage: Usage = Usage()
    """Of everything in this file."""
    inherited: Usage | None = None
    """Of ``usage``: what earlier tries of the unit paid for, whose answers this one took over."""
    started_at: str
    seconds: float
    """The agent's own, without making the sandbox and taking the patch."""
    beside: bool = False
    """Whether it is a further conversation of the attempt that it stands in, of a sub-agent or a helper of an agent
    program, and not an attempt of its own."""
    printed: AnyText | None = None
    """What an agent program printed itself; of much, both ends."""


class Trajectory(Record):
    """Everything an agent did. ``steps`` are numbered from 1; there is at least one."""

    file: ClassVar[str] = "trajectory.json"
    place: ClassVar[Place] = Place.UNIT
    schema_version: Literal["ATIF-v1.7"] = "ATIF-v1.7"
    session_id: str | None = None
    """The run."""
    trajectory_id: str | None = None
    """Run, instance and attempt, with slashes between."""
    agent: AgentInfo
    steps: list[Turn] = Field(min_length=1)
    notes: str | None = None
    final_metrics: FinalMetrics | None = None
    extra: TrajectoryExtra
    subagent_trajectories: list[Trajectory] | None = None
    """The attempt's further conversations (``extra.beside``); in iterative mode the attempts that were not chosen, too,
    each whole."""

    @property
    def answers(self) -> int:
        """Answers of the model in the chosen attempt, its further conversations included; not what was filtered."""
        beside = [other.answers for other in self.subagent_trajectories or [] if other.extra.beside]
        said = [turn for turn in self.steps if turn.source == "agent"]
        return sum(beside) + sum(bool(turn.message or turn.tool_calls or turn.extra) for turn in said)

    def to_bytes(self) -> bytes:
        """One line of JSON, without what is not known: a trajectory is large."""
        return (to_json(self.model_dump(mode="json", exclude_none=True), separators=(",", ":")) + "\n").encode()


def spent_in(trajectory: bytes | None) -> Usage:
    """What the try took that left a trajectory, read from its bytes alone: without what it took over from earlier ones.

    Nothing where they are no trajectory.
    """
    try:
        extra = json.loads(trajectory or b"{}").get("extra", {})
        return Usage.model_validate(extra.get("usage", {})) - Usage.model_validate(extra.get("inherited") or {})
    except (ValueError, AttributeError):
        return Usage()
