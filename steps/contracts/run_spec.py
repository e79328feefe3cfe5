"""RunSpec: everything that a person can ask of a run. One field here is one flag, one TOML key and one line of docs."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from swe_argo.steps.contracts.agent_spec import AgentSpec, agent_of
from swe_argo.steps.contracts.ids import RUN_ID_RULE, TAG_RULE, is_run_id, is_tag
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.contracts.spec_table import File, Flag, How, Table
from swe_argo.steps.contracts.wire_protocol import WireProtocol

OFFICIAL_TIMEOUT_S = 1800
"""Seconds that the SWE-bench harness gives the tests of an instance."""
LAST_VALIDATION = "last"
"""For ``select.validated``: the newest of the dataset in the store."""
MAX_RESOURCE_FACTOR = 8.0
"""Retries double what a sandbox that ran out may take up to this (OpenHands: min(base * 2^failures, 8))."""


class SelectSpec(Table):
    """Which instances of the dataset to run; every given condition must hold."""

    instance_ids: Annotated[list[str], Flag("--instance", "-i", "--instance-ids", "--instance_ids", "--eval-ids")] = []
    """Only these instance ids (repeatable); unknown ones are refused."""
    ids_file: Annotated[str | None, Flag("--ids-file"), File()] = None
    """Only the ids in this file, one a line; blank lines and # comments are skipped."""
    exclude: Annotated[list[str], Flag("--exclude")] = []
    """Leave these ids out (repeatable)."""
    regex: Annotated[str | None, Flag("--regex", "--filter")] = None
    """Only ids in which this regular expression is found."""
    repos: Annotated[list[str], Flag("--repo")] = []
    """Only these repositories, as owner/name (repeatable)."""
    start_idx: Annotated[int, Flag("--start-idx", "--start_idx"), Field(ge=0)] = 0
    """Skip this many of the selected instances."""
    k: Annotated[int | None, Flag("--k", "--eval-limit", "--eval-n-limit"), Field(ge=1)] = None
    """Take at most this many of the selected instances."""
    shuffle_seed: Annotated[int | None, Flag("--shuffle-seed", "--seed")] = None
    """Shuffle the selected instances with this seed before start_idx and k; without it the dataset's order holds."""
    validated: Annotated[str | None, Flag("--validated"), File(or_name=True)] = None
    """Of what is selected so, only what this validation.json of swe-argo validate calls valid; last: of those
    of the dataset in the store the one that knows most of them, the newest of several."""
    keep_invalid: Annotated[bool, Flag("--keep-invalid/--leave-out-invalid")] = False
    """With --validated: leave nothing out, only name what is not valid."""
    skip_not_gradeable: Annotated[bool, Flag("--skip-not-gradeable/--refuse-not-gradeable")] = False
    """Leave out what cannot be graded, and say so; by default such instances are refused before anything runs."""


class LlmSpec(Table):
    """How the model is asked: the keys of OpenHands' [llm.NAME] groups. A key of the endpoint is never part of it."""

    config: Annotated[str | None, Flag("--llm-config", "--llm_config"), How()] = None
    """Take the model and the fields below from this group of config.toml, e.g. llm.eval_gpt4; flags win over it."""
    config_file: Annotated[str, Flag("--llm-config-file", "--config-file"), How()] = "config.toml"
    """Where that group stands."""
    base_url: Annotated[str | None, Flag("--base-url", "--llm-base-url"), How()] = None
    """OpenAI-compatible endpoint; LLM_BASE_URL by default, else OpenAI's own."""
    temperature: Annotated[float | None, Flag("--temperature"), Field(ge=0)] = 0.0
    """Sampling temperature; none in a file leaves it to the endpoint, as mini-swe-agent does by default."""
    top_p: Annotated[float | None, Flag("--top-p"), Field(gt=0, le=1)] = None
    """Nucleus sampling; by default 1 for openhands and sweagent, else the endpoint's own."""
    seed: Annotated[int | None, Flag("--llm-seed")] = None
    """Sampling seed, where the endpoint takes one."""
    max_output_tokens: Annotated[int | None, Flag("--max-output-tokens"), Field(ge=1)] = None
    """Tokens one answer may have; the endpoint's own by default."""
    reasoning_effort: Annotated[str | None, Flag("--reasoning-effort")] = None
    """minimal, low, medium, high: for models that take it."""
    native_tool_calling: bool | None = None
    """OpenHands' name for agent.use_fn_calling, which wins over it."""
    input_cost_per_token: Annotated[float | None, Flag("--input-cost-per-token"), How(), Field(ge=0)] = None
    """Dollars a prompt token costs."""
    output_cost_per_token: Annotated[float | None, Flag("--output-cost-per-token"), How(), Field(ge=0)] = None
    """Dollars a completion token costs."""
    cached_cost_per_token: Annotated[float | None, Flag("--cached-cost-per-token"), How(), Field(ge=0)] = None
    """Dollars a cached prompt token costs; by default as any other."""
    timeout: Annotated[float, Flag("--llm-timeout"), How(), Field(gt=0)] = 600.0
    """Seconds one call may take; by default 7,200 for r2egym, else 600."""
    num_retries: Annotated[int, Flag("--num-retries"), How(), Field(ge=0)] = 5
    """Further requests after 429, 5xx, a timeout or a dropped connection."""
    concurrency: Annotated[int | None, Flag("--llm-concurrency"), How(), Field(ge=1)] = None
    """Calls that the endpoint takes at a time, over all units."""
    requests_per_minute: Annotated[float | None, Flag("--requests-per-minute", "--rpm"), How(), Field(gt=0)] = None
    """Requests that the endpoint takes a minute, over all units."""
    logprobs: Annotated[bool, Flag("--logprobs/--no-logprobs")] = False
    """Ask for token ids and log probabilities, and record them."""
    stream: Annotated[bool, Flag("--stream/--no-stream"), How()] = False
    """Take answers as a stream: some proxies drop connections that are silent for long."""
    speaks: Annotated[list[WireProtocol], Flag("--endpoint-speaks"), How()] = []
    """Protocols of the endpoint, as chat,anthropic or responses, for an agent program; by default plan asks it."""
    extra_body: dict[str, Any] = {}
    """Further fields of each request, e.g. top_k or chat_template_kwargs of vLLM."""

    @field_validator("speaks", mode="before")
    @classmethod
    def _split_at_commas(cls, value: object) -> object:
        words = [value] if isinstance(value, str) else value
        if not isinstance(words, list):
            return words
        return [part for word in words for part in (word.split(",") if isinstance(word, str) else [word])]

    @field_validator("base_url")
    @classmethod
    def _without_password(cls, value: str | None) -> str | None:
        if value is not None and ("@" in value or "?" in value):
            raise ValueError("an address holds no password and no query: they would be stored; use OPENAI_API_KEY")
        return value


class GradingSpec(Table):
    """How patches are graded."""

    timeout_s: Annotated[int, Flag("--timeout", "-t", "--max_reward_calc_time"), Field(ge=1)] = OFFICIAL_TIMEOUT_S
    """Seconds the tests may run; the official limit is 1800. R2E-Gym's is 300, unless another than 1800 is given."""
    network: Annotated[bool, Flag("--grading-network/--no-grading-network")] = True
    """Let the tests reach the network, as the official containers do (498 of 500 Verified scripts run pip)."""
    confirm: Annotated[Literal["resolved", "always", "never"], Flag("--confirm", "--counter-proof"), How()] = "resolved"
    """Confirm verdicts by twin tests, some of which must fail. resolved: resolved patches, but for reference patches.
    always: every resolved patch, reference patches too. never."""
    confirm_runs: Annotated[int | None, Flag("--confirm-runs"), How(), Field(ge=0, le=6)] = None
    """Confirmation runs of a patch; by default 2 to 6, as --confirm-chance needs. 1: a spot check, 0: none."""
    confirm_chance: Annotated[float, Flag("--confirm-chance"), How(), Field(gt=0, lt=1)] = 0.125
    """Add a confirmation run while a guess passes all of them with a greater chance than this."""

    @model_validator(mode="before")
    @classmethod
    def _earlier_name(cls, fields: Any) -> Any:
        """Read ``counter_proof``, the earlier name of ``confirm``."""
        if isinstance(fields, dict) and "counter_proof" in fields:
            rest = {name: value for name, value in fields.items() if name != "counter_proof"}
            return {"confirm": fields["counter_proof"], **rest}
        return fields


MAX_TAGS = 16
"""Of a run: they are shown beside its name."""


def _legal_tag(value: str) -> str:
    if not is_tag(value):
        raise ValueError(f"{value!r} is no tag: {TAG_RULE}")
    return value


class RunSpec(Table):
    """What to evaluate, on what, and how. Written first, read by every step."""

    run_id: Annotated[str | None, Flag("--run-id", "--run_id", "--exp_name")] = None
    """The run's name; the same name again resumes it. By default made from agent, dataset and time."""
    tags: Annotated[list[Annotated[str, AfterValidator(_legal_tag)]], Flag("--tag"), How()] = []
    """Words to find the run by: swe-argo runs --tag WORD (repeatable). Resumed with others it has those instead."""
    dataset: Annotated[str, Flag("--dataset", "-d", "--subset"), File(or_name=True)] = "mini"
    """mini (mini-r2e, ...: docs/add-a-family.md), an alias (verified, lite, full, multilingual, multimodal), a hub id,
    a file of rows, or a task repo."""
    split: Annotated[str, Flag("--split", "-s")] = "test"
    """Split of the dataset."""
    revision: Annotated[str | None, Flag("--revision")] = None
    """Commit, tag or branch of a hub dataset; the resolved commit is recorded."""
    family: Annotated[str | None, Flag("--family")] = None
    """Family of the rows, by default known by their columns (docs/add-a-family.md has them all). package.module:NAME or
    path/to/file.py:NAME: one of your own."""
    answers: Annotated[str | None, Flag("--answers"), File(or_name=True)] = None
    """A swebench 5 dataset to join classic rows with by id (they lack image, eval_script, log_parser, eval_type)."""
    attempts: Annotated[int, Flag("--attempts", "-n", "--n-runs"), Field(ge=1, le=100)] = 1
    """Independent attempts an instance (pass@k)."""
    workers: Annotated[
        int | None, Flag("--workers", "-j", "--max-workers", "--num-workers", "--eval-num-workers"), How(), Field(ge=1)
    ] = None
    """Units that run at a time; by default three quarters of the cores, at least one, at most 24. With a model four for
    each core, at most 24, of which as many as without are graded at a time; 16 on kubernetes and e2b."""
    retries: Annotated[int, Flag("--retries"), How(), Field(ge=0)] = 3
    """Further tries of a step after a failure of the infrastructure."""
    continue_solves: Annotated[bool, Flag("--continue/--no-continue"), How()] = True
    """Have a further try of a solve go on where the last one was lost: what its agent did is done again in a fresh
    sandbox, and no answer of the model is asked for twice. Needs save_checkpoints."""
    fail_fast: Annotated[bool, Flag("--fail-fast/--no-fail-fast"), How()] = False
    """End the run as failed at the first unit that is out of retries; by default the rest goes on."""
    give_up_after: Annotated[int, Flag("--give-up-after"), How(), Field(ge=0)] = 10
    """Begin no further unit where the first so many have all ended without a verdict, for one and the same class of
    failure: the rest would, too. 0: never."""
    canary: Annotated[int | None, Flag("--canary"), How(), Field(ge=0)] = None
    """Grade the reference patches of so many of the instances first: where one fails, the machines are not to be
    believed. By default 3 on a cluster, where 50 units or more are to do; 0: none."""
    stop_on_canary: Annotated[bool, Flag("--stop-on-canary/--no-stop-on-canary"), How()] = False
    """Begin nothing else where the canary fails; by default the run goes on, and says so on top."""
    redo: Annotated[list[str], Flag("--redo"), How()] = []
    """Do these units of a run that is there again: an outcome (unresolved), a stop reason (max_steps), instances, or
    INSTANCE/ATTEMPT; several by commas (repeatable). The old verdicts are kept as earlier tries."""
    save_error_logs: Annotated[bool, Flag("--save-error-logs/--no-save-error-logs"), How()] = True
    """Keep what the step of a failed try printed."""
    save_checkpoints: Annotated[bool, Flag("--save-checkpoints/--no-save-checkpoints"), How()] = True
    """Keep the trajectory that a failed try had got to."""
    max_cost_usd: Annotated[float | None, Flag("--max-cost"), How(), Field(gt=0)] = None
    """Money the run may cost: past it no further unit is begun; the same run with a larger limit does the rest."""
    store: Annotated[str, Flag("--store", "--traj_dir", "--output-dir", "--eval-output-dir", "-o"), How()] = "results"
    """Folder or s3://bucket/prefix that holds all runs."""
    select: SelectSpec = SelectSpec()
    agent: AgentSpec = AgentSpec()
    llm: LlmSpec = LlmSpec()
    sandbox: SandboxSpec = SandboxSpec()
    grading: GradingSpec = GradingSpec()

    @model_validator(mode="after")
    def _asked_as_its_project_asks(self) -> Self:
        """What a spec leaves open of how a model is asked is as the agent's project has it."""
        own = agent_of(self.agent).defaults.llm
        left = {name: value for name, value in own.items() if name not in self.llm.model_fields_set}
        if left:
            self.llm = self.llm.model_copy(update=left)
        return self

    @field_validator("run_id")
    @classmethod
    def _legal_run_id(cls, value: str | None) -> str | None:
        if value is not None and not is_run_id(value):
            raise ValueError(f"{value!r} is no run id: {RUN_ID_RULE}")
        return value

    @field_validator("tags")
    @classmethod
    def _few_tags(cls, value: list[str]) -> list[str]:
        tags = list(dict.fromkeys(value))
        if len(tags) > MAX_TAGS:
            raise ValueError(f"a run has at most {MAX_TAGS} tags")
        return tags
