"""AgentSpec: the agent of a run and its limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from swe_argo.steps.contracts.recipe import Protocol, legal_version
from swe_argo.steps.contracts.registry import AGENT_ALIASES, AGENTS, Agent, AgentKind, Defaults, is_own
from swe_argo.steps.contracts.spec_table import File, Flag, Table, unknown_choice

FROM_RUN = "run:"
"""Prefix of ``agent.predictions`` that names an earlier run of the same store instead of a file."""


class OwnAgent(Table):
    """Attributes of a user's agent class, stored so that the run can be read without the class."""

    asks_model: bool = False
    calls_tools: bool = False


class AgentSpec(Table):
    """The agent that works on the issues, and its limits."""

    name: Annotated[str, Flag("--agent", "-a", "--scaffold", "--agent-cls")] = "gold"
    """gold: the reference patches. given: a predictions file. idle: no change. replay: recorded actions. r2egym,
    openhands, sweagent: a model in that project's scaffold. mini-swe-agent: that library. oneshot: one model call.
    package.module:Class or path/to/file.py:Class: your own (docs/add-an-agent.md)."""
    own: OwnAgent | None = None
    """Attributes of a user's agent, set when a spec is read; a stated value is overwritten."""
    predictions: Annotated[str | None, Flag("--predictions", "-p"), File()] = None
    """Predictions to grade with agent 'given': swebench's .json or .jsonl, an output.jsonl, SWE-agent's .traj or .pred,
    or a folder of these. --model names the model of rows without one."""
    trajectories: Annotated[str | None, Flag("--trajectories"), File()] = None
    """File or folder of recorded trajectories for agent 'replay'."""
    file: Annotated[str | None, Flag("--agent-file"), File()] = None
    """TOML recipe of your own agent program (docs/agent-programs.md). Selects agent 'program'."""
    command: Annotated[str | None, Flag("--agent-command")] = None
    """Command of an agent program without a recipe, e.g. './my-agent --task {instruction_file}'; needs --agent-folder
    or --agent-image. Selects agent 'program'."""
    folder: Annotated[str | None, Flag("--agent-folder")] = None
    """Folder with the files of --agent-command, mounted read-only in the sandbox at {bundle}."""
    image: Annotated[str | None, Flag("--agent-image")] = None
    """OCI image with the files of an agent program at its root, for sandboxes on a cluster."""
    protocol: Annotated[Protocol, Flag("--agent-protocol")] = "chat"
    """Protocol in which --agent-command calls its model: OpenAI chat completions, OpenAI Responses or Anthropic
    messages."""
    version: Annotated[Annotated[str, AfterValidator(legal_version)] | None, Flag("--agent-version")] = None
    """Version of an agent program; by default its recipe's. --agent NAME@VERSION sets it too."""
    model: Annotated[str | None, Flag("--model", "-m", "--llm-name", "--llm_name")] = None
    """Model to call, as openai/NAME, and its name in reports. For gold, given and replay: the name in reports."""
    helper_model: Annotated[str | None, Flag("--helper-model")] = None
    """Model for an agent program's titles, summaries and sub-agents, at the same endpoint; by default the run's
    model."""
    use_fn_calling: Annotated[Literal["auto", "true", "false"], Flag("--use-fn-calling", "--use_fn_calling")] = "auto"
    """Use function calling (true) or tool calls in text (false). auto: test the endpoint with one small request."""
    scaffold_fidelity: Annotated[Literal["project", "ours"], Flag("--scaffold-fidelity")] = "project"
    """project: tools and their output exactly as in the scaffold's project. ours: with the information that the project
    withholds from the model (docs/scaffolds.md)."""
    max_steps: Annotated[int | None, Flag("--max-steps", "--max_steps", "--max-iterations"), Field(ge=1)] = None
    """Actions per instance before the agent must finish; by default its project's limit (docs/scaffolds.md)."""
    max_steps_absolute: Annotated[int | None, Flag("--max-steps-absolute", "--max_steps_absolute"), Field(ge=1)] = None
    """Actions per instance after which the agent is stopped; by default --max-steps, plus 10 for r2egym."""
    max_token_limit: Annotated[
        int | None, Flag("--max-token-limit", "--max_token_limit", "--max-tokens", "--max_tokens"), Field(ge=1)
    ] = None
    """Maximum context of a conversation, in tokens; by default the limit of the agent's project."""
    max_total_tokens: Annotated[int | None, Flag("--max-total-tokens"), Field(ge=1)] = None
    """Maximum tokens, in and out, of all model calls of an instance."""
    max_cost_usd: Annotated[float | None, Flag("--max-cost-per-instance"), Field(gt=0)] = None
    """Maximum cost of an instance, in dollars; needs a price (llm.input_cost_per_token, or an endpoint that reports
    costs). By default 3 for sweagent and mini-swe-agent."""
    command_timeout_s: Annotated[float, Flag("--command-timeout"), Field(gt=0)] = 90.0
    """Time limit of one command, in seconds; by default the limit of the agent's project."""
    commands_timeout_s: Annotated[float | None, Flag("--commands-timeout"), Field(gt=0)] = None
    """Time limit of all commands of an instance together, in seconds; by default 1,800 for sweagent."""
    timeout_s: Annotated[float, Flag("--agent-timeout"), Field(gt=0)] = 3600.0
    """Time limit of an agent on one instance, in seconds; in iterative mode over all its attempts. By default the limit
    of the agent's project."""
    max_observation: Annotated[int | None, Flag("--max-observation"), Field(ge=100)] = None
    """Maximum characters of an observation; by default the scaffold's limit."""
    max_malformed: Annotated[int | None, Flag("--max-malformed"), Field(ge=1)] = None
    """Stop the agent after N responses in a row without a valid tool call; by default 3 if its project does so, else
    never."""
    instruction_template: Annotated[str | None, Flag("--instruction-template"), File(or_name=True)] = None
    """Jinja2 template of the first instruction: a name in templates/prompts or a path; by default the agent's own."""
    scaffold_words: Annotated[str | None, Flag("--scaffold-words"), File()] = None
    """TOML file that replaces a scaffold's system prompt, tool descriptions or output formats (docs/scaffolds.md)."""
    hints: Annotated[bool, Flag("--hints/--no-hints")] = False
    """Show the agent the issue's discussion too; the report notes it."""
    issue_images: Annotated[bool, Flag("--issue-images/--no-issue-images")] = False
    """Show the model the issue's images too (SWE-bench Multimodal), as addresses for the endpoint to fetch; the report
    notes it. Only r2egym, openhands and sweagent support it."""
    prompt_style: Annotated[Literal["style-2", "style-2-edits-only", "style-3"], Flag("--prompt-style")] = "style-3"
    """SWE-bench's published layout of oneshot's prompt. style-2-edits-only shows which lines the reference patch
    touches; the report notes it."""
    iterative: Annotated[bool, Flag("--iterative/--no-iterative")] = False
    """Repeat an instance in a fresh sandbox until the critic accepts; the best patch is graded once."""
    iterative_max_attempts: Annotated[int, Flag("--iterative-max-attempts"), Field(ge=1, le=20)] = 3
    """Maximum attempts in iterative mode."""
    critic: Annotated[Literal["finish_with_patch", "empty_patch", "pass"], Flag("--critic")] = "finish_with_patch"
    """Condition that accepts an attempt in iterative mode: the agent finished with a patch (finish_with_patch), it left
    a patch (empty_patch), or none (pass)."""

    @model_validator(mode="before")
    @classmethod
    def _apply_agent_defaults(cls, table: Any) -> Any:
        """Fill unset fields with the defaults of the agent's project."""
        if not isinstance(table, dict) or not isinstance(name := table.get("name", "gold"), str):
            return table
        name, at, version = name.partition("@")
        if at and not is_own(name):
            table = {**table, "name": name, "version": version}
        agent = AGENTS.get(AGENT_ALIASES.get(name, name))
        return (agent.defaults if agent else Defaults()).agent | table

    @field_validator("name", mode="before")
    @classmethod
    def _resolve_name(cls, value: object) -> object:
        """Replace another tool's name of an agent by ours; refuse an unknown name."""
        name = AGENT_ALIASES.get(value, value) if isinstance(value, str) else value
        if isinstance(name, str) and (name in AGENTS or is_own(name)):
            return name
        raise unknown_choice(AGENTS)

    @property
    def earlier_run(self) -> str | None:
        """Return the run whose patches are graded again; None if there is none."""
        predictions = self.predictions or ""
        is_regrade = agent_of(self).kind is AgentKind.GIVEN and predictions.startswith(FROM_RUN)
        return predictions.removeprefix(FROM_RUN) if is_regrade else None

    @property
    def soft_step_limit(self) -> int:
        """Return the steps after which the agent must finish: its project's, or those of its end if that is sooner."""
        usual = agent_of(self).defaults.steps
        return self.max_steps or min(usual, self.max_steps_absolute or usual)

    @property
    def hard_step_limit(self) -> int:
        """Return the steps after which the agent is stopped. Only scaffolds are asked to finish before."""
        agent = agent_of(self)
        if agent.calls_tools and not agent.is_scaffold:
            return self.soft_step_limit
        return self.max_steps_absolute or self.soft_step_limit + agent.defaults.more_steps

    @property
    def most_turns(self) -> int | None:
        """Return the maximum responses before the agent must finish; None without a limit."""
        return self.soft_step_limit if agent_of(self).calls_tools else self.max_steps

    @field_validator("max_steps_absolute")
    @classmethod
    def _at_least_max_steps(cls, value: int | None, info: ValidationInfo) -> int | None:
        max_steps = info.data.get("max_steps")
        if value is not None and max_steps is not None and value < max_steps:
            raise ValueError(f"must be at least agent.max_steps, {max_steps}, when the agent must finish")
        return value

    @field_validator("issue_images")
    @classmethod
    def _refuse_unsupported_images(cls, value: bool, info: ValidationInfo) -> bool:
        agent = AGENTS.get(info.data.get("name", ""))
        if value and agent is not None and not agent.is_scaffold:
            raise ValueError(f"agent {info.data['name']} cannot show images: use r2egym, openhands or sweagent")
        return value

    @field_validator("use_fn_calling", mode="before")
    @classmethod
    def _accept_bool(cls, value: object) -> object:
        return str(value).lower() if isinstance(value, bool | str) else value


def agent_of(spec: AgentSpec) -> Agent:
    """Return the agent that a spec names."""
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
