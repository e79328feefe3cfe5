"""Resolution of a run's agent program: its recipe, and its files, which exist or can be made."""

from __future__ import annotations

import platform

from swe_argo.steps.bundles.build import architecture_here, keep_folder, made_of
from swe_argo.steps.bundles.recipes import ChosenRecipe, choose_recipe
from swe_argo.steps.bundles.stored import find_made
from swe_argo.steps.contracts.agent_spec import AgentSpec, agent_of
from swe_argo.steps.contracts.backends import backend_named
from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.contracts.progress_lines import doing
from swe_argo.steps.contracts.recipe import AgentProgram, Architecture, BundleFacts
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError

_PROGRAM_FIELDS = ("file", "command", "folder", "image", "version")


def resolve_program(spec: RunSpec, here: RunSpec, before: RunFile | None) -> AgentProgram | None:
    """Return the agent program of a run; None for one of our agents. ``here`` is the spec with local files.

    Raises ConfigError for a wrong recipe, a package that is not built yet, files that cannot run in the run's
    sandboxes, or files that differ from those the run began with.
    """
    if not agent_of(spec.agent).is_program:
        _refuse_fields(spec.agent)
        return None
    chosen = choose_recipe(here.agent)
    architecture = architecture_of(spec.sandbox)
    if architecture not in chosen.recipe.architectures:
        there = ", ".join(chosen.recipe.architectures)
        reason = f"{chosen.recipe.name} runs on {there}, and the sandboxes are {architecture}"
        raise ConfigError(reason, field="sandbox.platform")
    _refuse_libc(spec.sandbox, chosen)
    program = AgentProgram(recipe=chosen.recipe, bundle=_bundle(spec, chosen, architecture))
    if before is not None and before.program != program:
        raise ConfigError(
            f"run {before.run_id!r} began with another recipe or other files of {chosen.recipe.name}; "
            "use another run id",
            field="run_id",
        )
    return program


def architecture_of(spec: SandboxSpec) -> Architecture:
    """Return the architecture of the run's sandboxes."""
    if spec.backend == "local":
        return architecture_here()
    return "arm64" if spec.platform.endswith("/arm64") else "amd64"


def _bundle(run: RunSpec, chosen: ChosenRecipe, architecture: Architecture) -> BundleFacts | None:
    spec = run.agent
    recipe = chosen.recipe
    image = spec.image or recipe.source.image
    if image is not None:
        name, _, digest = image.partition("@")
        if not digest.startswith("sha256:"):
            reason = f"{image} is no fixed image: {name}@sha256:..., as swe-argo agents push prints it"
            raise ConfigError(reason, field="agent.image")
        return BundleFacts(digest=digest, architecture=architecture, libc=recipe.libc, image=image)
    if backend_named(run.sandbox.backend).on_cluster and (recipe.source.folder is not None or recipe.is_package):
        raise ConfigError(_image_command(spec, chosen, architecture), field="agent.image")
    if recipe.source.folder is not None:
        doing(f"keeping the files of {recipe.source.folder}")
        return keep_folder(recipe, architecture).facts
    if not recipe.is_package:
        return None
    stored = find_made(made_of(chosen, architecture))
    if stored is None:
        raise ConfigError(
            f"the files of {recipe.name} {recipe.version} for {architecture} are not built: "
            f"{_command('build', spec, chosen, architecture)}",
            field="agent.name",
        )
    return stored.facts


def _image_command(spec: AgentSpec, chosen: ChosenRecipe, architecture: Architecture) -> str:
    name = chosen.recipe.name
    if spec.file is None and not chosen.recipe.is_package:
        return (
            f"pods have the files of {name} from an image: describe it in a file with its folder as source, then "
            "swe-argo agents push FILE.toml IMAGE prints what --agent-image takes"
        )
    command = _command("push", spec, chosen, architecture, "IMAGE")
    return f"pods have the files of {name} from an image: {command} prints what --agent-image takes"


def _command(verb: str, spec: AgentSpec, chosen: ChosenRecipe, architecture: Architecture, *more: str) -> str:
    which = spec.file or chosen.recipe.name
    words = [f"swe-argo agents {verb}", f"{which}@{spec.version}" if spec.version else which, *more]
    return " ".join([*words, *(["--architecture", architecture] if architecture != architecture_here() else [])])


def _refuse_libc(spec: SandboxSpec, chosen: ChosenRecipe) -> None:
    """Raise ConfigError if the files are known to need another C library than the sandbox has."""
    needed = chosen.recipe.libc
    if spec.backend != "local" or needed == "any":
        return
    found = "glibc" if platform.libc_ver()[0] == "glibc" else "musl"
    if found != needed:
        reason = f"{chosen.recipe.name} needs {needed}, and this machine has {found}: use --backend docker"
        raise ConfigError(reason, field="sandbox.backend")


def _refuse_fields(agent: AgentSpec) -> None:
    """Raise ConfigError for fields that only agent programs have."""
    for name in _PROGRAM_FIELDS:
        if getattr(agent, name) is not None:
            raise ConfigError(f"{agent.name} is no agent program: leave --agent away", field=f"agent.{name}")
    if agent.helper_model is not None:
        raise ConfigError(f"{agent.name} has no helpers: only agent programs have", field="agent.helper_model")
