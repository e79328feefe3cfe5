"""The part of a spec that says who works on the issue, and the agent that it names."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from swe_argo.steps.contracts.agents import AGENT_ALIASES, AGENTS, Agent, AgentKind, Defaults, is_own
from swe_argo.steps.contracts.recipe import Protocol, legal_version
from swe_argo.steps.contracts.spec_table import File, Flag, Table, unknown_choice

FROM_RUN = "run:"
"""What ``agent.predictions`` begins with where it names an earlier run of the same store instead of a file."""


class OwnAgent(Table):
    """What the class of an agent of one's own says of itself, kept so that a run can be read where the class is not."""

    asks_model: bool = False
    calls_tools: bool = False


class AgentSpec(Table):
    """Who works on the issue."""

    name: Annotated[str, Flag("--agent", "-a", "--scaffold", "--agent-cls")] = "gold"
    """gold: the reference patch. given: a predictions file. idle: no change, graded. replay: recorded actions. r2egym,
    openhands, sweagent: a model in the scaffold of that project. mini-swe-agent: that library. oneshot: one call.
    package.module:Class or path/to/file.py:Class: one of your own, docs/add-an-agent.md."""
    own: OwnAgent | None = None
    """Of an agent of one's own: set where a spec is read, whatever stands here."""
    predictions: Annotated[str | None, Flag("--predictions", "-p"), File()] = None
    """Predictions to grade (.json or .jsonl, as swebench reads them, an output.jsonl, or SWE-agent's .traj or .pred, a
    folder of them, too); chooses agent 'given'. --model names the model of rows that name none."""
    trajectories: Annotated[str | None, Flag("--trajectories"), File()] = None
    """Folder or file of recorded trajectories, or of predictions, for agent 'replay'."""
    file: Annotated[str | None, Flag("--agent-file"), File()] = None
    """Recipe of an agent program of your own, in TOML: docs/agent-programs.md. Chooses agent 'program'."""
    command: Annotated[str | None, Flag("--agent-command")] = None
    """Command of an agent program that needs no recipe, as './my-agent --task {instruction_file}'; with the folder or
    the image that holds it. Chooses agent 'program'."""
    folder: Annotated[str | None, Flag("--agent-folder")] = None
    """Folder with the files of agent.command: the sandbox has it, read-only, at {bundle}."""
    image: Annotated[str | None, Flag("--agent-image")] = None
    """OCI image with the files of an agent program at its root, for sandboxes of a cluster."""
    protocol: Annotated[Protocol, Flag("--agent-protocol")] = "chat"
    """What agent.command speaks to its model: OpenAI chat completions, OpenAI Responses or Anthropic messages."""
    version: Annotated[Annotated[str, AfterValidator(legal_version)] | None, Flag("--agent-version")] = None
    """Version of an agent program, where it is to be another than its recipe's; --agent NAME@VERSION says it, too."""
    model: Annotated[str | None, Flag("--model", "-m", "--llm-name", "--llm_name")] = None
    """The model to ask, as openai/NAME; its name in reports, too. For gold, given and replay only a name in reports."""
    helper_model: Annotated[str | None, Flag("--helper-model")] = None
    """The model for the helpers of an agent program (titles, summaries, sub-agents), at the same endpoint; by default
    theirs is the run's, too."""
    use_fn_calling: Annotated[Literal["auto", "true", "false"], Flag("--use-fn-calling", "--use_fn_calling")] = "auto"
    """Whether tools are called by function calling or in text. auto: asks the endpoint once, and says what it found."""
    scaffold_fidelity: Annotated[Literal["project", "ours"], Flag("--scaffold-fidelity")] = "project"
    """project: tools and their output just as the scaffold's project has them. ours: with what it keeps from the model,
    docs/scaffolds.md."""
    max_steps: Annotated[int | None, Flag("--max-steps", "--max_steps", "--max-iterations"), Field(ge=1)] = None
    """Actions an instance, then the agent is told to finish; by default as its project has it, docs/scaffolds.md."""
    max_steps_absolute: Annotated[int | None, Flag("--max-steps-absolute", "--max_steps_absolute"), Field(ge=1)] = None
    """Actions after which it is ended, told to finish or not; by default those of --max-steps, for r2egym 10 more."""
    max_token_limit: Annotated[
        int | None, Flag("--max-token-limit", "--max_token_limit", "--max-tokens", "--max_tokens"), Field(ge=1)
    ] = None
    """Tokens of context that a conversation may reach; by default as the agent's project has it."""
    max_total_tokens: Annotated[int | None, Flag("--max-total-tokens"), Field(ge=1)] = None
    """Tokens, in and out, that all calls of an instance may take together."""
    max_cost_usd: Annotated[float | None, Flag("--max-cost-per-instance"), Field(gt=0)] = None
    """Money that an instance may cost; needs a price (llm.input_cost_per_token, or an endpoint that tells). By default
    3 $ for sweagent and mini-swe-agent."""
    command_timeout_s: Annotated[float, Flag("--command-timeout"), Field(gt=0)] = 90.0
    """Seconds one action's command may run; by default as the agent's project has it."""
    commands_timeout_s: Annotated[float | None, Flag("--commands-timeout"), Field(gt=0)] = None
    """Seconds all commands of an instance may run together; by default 1,800 for sweagent."""
    timeout_s: Annotated[float, Flag("--agent-timeout"), Field(gt=0)] = 3600.0
    """Seconds an agent may work on one instance, in iterative mode in all its attempts together; by default as the
    agent's project has it."""
    max_observation: Annotated[int | None, Flag("--max-observation"), Field(ge=100)] = None
    """Characters of an action's result that the agent sees; by default the scaffold's own."""
    max_malformed: Annotated[int | None, Flag("--max-malformed"), Field(ge=1)] = None
    """Answers in a row without a call that can be made, then the agent is ended; by default 3 where its project does
    that, and else no number."""
    instruction_template: Annotated[str | None, Flag("--instruction-template"), File(or_name=True)] = None
    """Jinja2 file of the first instruction: a name in templates/prompts or a path; the agent's own by default."""
    scaffold_words: Annotated[str | None, Flag("--scaffold-words"), File()] = None
    """TOML file with a scaffold's system prompt, descriptions of its tools and frames of what they show, where they are
    not to be its own: docs/scaffolds.md."""
    hints: Annotated[bool, Flag("--hints/--no-hints")] = False
    """Show the agent the issue's discussion too; the report says so."""
    issue_images: Annotated[bool, Flag("--issue-images/--no-issue-images")] = False
    """Show the model the issue's images too (SWE-bench Multimodal): their addresses, behind the first instruction, for
    the endpoint to fetch. Of our agents r2egym, openhands and sweagent can; the report says so."""
    prompt_style: Annotated[Literal["style-2", "style-2-edits-only", "style-3"], Flag("--prompt-style")] = "style-3"
    """Layout of oneshot's prompt, as SWE-bench published it. style-2-edits-only shows which lines the reference patch
    touches; the report says so."""
    iterative: Annotated[bool, Flag("--iterative/--no-iterative")] = False
    """Try an instance again in a fresh sandbox while the critic refuses; the best patch is graded, once."""
    iterative_max_attempts: Annotated[int, Flag("--iterative-max-attempts"), Field(ge=1, le=20)] = 3
    """Attempts in iterative mode."""
    critic: Annotated[Literal["finish_with_patch", "empty_patch", "pass"], Flag("--critic")] = "finish_with_patch"
    """What accepts an attempt in iterative mode: finishing with a patch, having a patch, or anything."""

    @model_validator(mode="before")
    @classmethod
    def _as_its_project_has_it(cls, given: Any) -> Any:
        """What a spec leaves open is as the agent's project has it."""
        if not isinstance(given, dict) or not isinstance(name := given.get("name", "gold"), str):
            return given
        name, at, version = name.partition("@")
        if at and not is_own(name):
            given = {**given, "name": name, "version": version}
        agent = AGENTS.get(AGENT_ALIASES.get(name, name))
        return (agent.defaults if agent else Defaults()).agent | given

    @field_validator("name", mode="before")
    @classmethod
    def _resolve_name(cls, value: object) -> object:
        """An agent of ours, perhaps by the name that another tool has for it."""
        name = AGENT_ALIASES.get(value, value) if isinstance(value, str) else value
        if isinstance(name, str) and (name in AGENTS or is_own(name)):
            return name
        raise unknown_choice(AGENTS)

    @property
    def earlier_run(self) -> str | None:
        """The run whose patches are graded again, where it is one."""
        given = self.predictions or ""
        regraded = agent_of(self).kind is AgentKind.GIVEN and given.startswith(FROM_RUN)
        return given.removeprefix(FROM_RUN) if regraded else None

    @property
    def told_after(self) -> int:
        """Steps after which the agent is told to finish: by default its project's, or its end where that is sooner."""
        usual = agent_of(self).defaults.steps
        return self.max_steps or min(usual, self.max_steps_absolute or usual)

    @property
    def ended_after(self) -> int:
        """Steps after which it is ended: by default 10 more in R2E-Gym. Only scaffolds are told before."""
        agent = agent_of(self)
        if agent.calls_tools and not agent.is_scaffold:
            return self.told_after
        return self.max_steps_absolute or self.told_after + agent.defaults.more_steps

    @property
    def most_turns(self) -> int | None:
        """Answers that its agent may give until it is told to finish; None where nothing bounds them."""
        return self.told_after if agent_of(self).calls_tools else self.max_steps

    @field_validator("max_steps_absolute")
    @classmethod
    def _ended_no_sooner_than_told(cls, value: int | None, info: ValidationInfo) -> int | None:
        told = info.data.get("max_steps")
        if value is not None and told is not None and value < told:
            raise ValueError(f"should be at least agent.max_steps, at which an agent is told to finish: {told}")
        return value

    @field_validator("issue_images")
    @classmethod
    def _shown_by_scaffolds(cls, value: bool, info: ValidationInfo) -> bool:
        agent = AGENTS.get(info.data.get("name", ""))
        if value and agent is not None and not agent.is_scaffold:
            raise ValueError(f"agent {info.data['name']} shows no images: r2egym, openhands and sweagent do")
        return value

    @field_validator("use_fn_calling", mode="before")
    @classmethod
    def _truth_as_a_word(cls, value: object) -> object:
        return str(value).lower() if isinstance(value, bool | str) else value


def agent_of(spec: AgentSpec) -> Agent:
    """The agent that a spec names, as a value."""
    if spec.name in AGENTS:
        return AGENTS[spec.name]
    own = spec.own or OwnAgent()
    return Agent(
        spec.name.rpartition(":")[2],
        runs=spec.name,
        asks_model=own.asks_model,
        calls_tools=own.calls_tools,
        runs_commands=True,
    )
