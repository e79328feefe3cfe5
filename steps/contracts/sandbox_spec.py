"""SandboxSpec: the table of a RunSpec that says where agents work and tests run, with a table for each backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from swe_argo.steps.contracts.backends import BACKENDS, is_own_backend
from swe_argo.steps.contracts.spec_table import File, Flag, How, Table, unknown_choice


class LocalSpec(Table):
    """What only backend local reads."""

    images: Annotated[str | None, Flag("--local-images"), How()] = None
    """Folder of unpacked images for backend local: <folder>/<image name, / as __>/testbed is a git checkout."""


class DockerSpec(Table):
    """What only backend docker reads."""

    keep_images: Annotated[bool, Flag("--keep-images/--no-keep-images"), How()] = False
    """Keep images that this run pulled; else each is removed after its last unit (docker)."""
    disk_budget_gb: Annotated[float | None, Flag("--disk-budget-gb"), How(), Field(gt=0)] = None
    """GiB that images pulled ahead may take; by default half of what is free (docker)."""


class KubernetesSpec(Table):
    """What only backend kubernetes reads, and whoever else asks its cluster."""

    namespace: Annotated[str | None, Flag("--namespace"), How()] = None
    """Namespace of the sandboxes; by default the one of the kube context, or of the pod that asks (kubernetes)."""
    context: Annotated[str | None, Flag("--kube-context", "--context"), How()] = None
    """Context of the kubeconfig; the current one by default (kubernetes)."""
    node_selector: Annotated[list[str], Flag("--node-selector"), How()] = []
    """Only nodes with this label, as key=value (repeatable); the namespace's selector by default (kubernetes)."""


class E2BSpec(Table):
    """What only backend e2b reads."""

    templates: Annotated[str | None, Flag("--e2b-templates"), File(), How()] = None
    """JSON file of {image: template} for backend e2b; an image that is not in it has a template named after it."""
    build_templates: Annotated[bool, Flag("--e2b-build-templates/--no-e2b-build-templates"), How()] = True
    """Build the templates that a run lacks before it begins; else it is refused, and says what builds them (e2b)."""
    creations_per_second: Annotated[float, Flag("--e2b-creations-per-second"), How(), Field(gt=0)] = 1.0
    """Sandboxes made a second, over all processes of this machine: 1 on the plan Hobby, 5 on Pro (e2b)."""
    sandboxes: Annotated[int, Flag("--e2b-sandboxes"), How(), Field(ge=1)] = 20
    """Sandboxes that the account runs at a time: 20 on the plan Hobby, 100 on Pro (e2b)."""
    longest_life_s: Annotated[float, Flag("--e2b-longest-life"), How(), Field(gt=0)] = 3600.0
    """Seconds that a sandbox may live: 3600 on the plan Hobby, 86400 on Pro (e2b)."""
    vcpu_usd_per_hour: Annotated[float, Flag("--e2b-vcpu-price"), How(), Field(ge=0)] = 0.0504
    """Dollars that a vCPU costs an hour while its sandbox runs; https://e2b.dev/pricing has it (e2b)."""
    gib_usd_per_hour: Annotated[float, Flag("--e2b-gib-price"), How(), Field(ge=0)] = 0.0162
    """Dollars that a GiB of memory costs an hour; as above (e2b)."""


class AGSSpec(Table):
    """What only backend ags reads."""

    mapping: Annotated[str | None, Flag("--ags-mapping"), File(), How()] = None
    """JSON file of {image: {tcr_image: ...}}, as swe-argo ags sync writes it; other images are pulled as they are named
    (ags)."""
    registry_type: Annotated[
        Literal["enterprise", "personal", "custom", "system"], Flag("--ags-registry-type"), How()
    ] = "personal"
    """The kind of registry of images for which the mapping says none: enterprise or personal of TCR, custom, system
    (ags)."""
    tool_per_image: Annotated[bool, Flag("--ags-tool-per-image/--ags-shared-tool"), How()] = False
    """Make sandboxes from a tool of their image, by its name or its tags; else all from one tool, which is given the
    image (ags)."""
    tool_prefix: Annotated[
        str, Flag("--ags-tool-prefix"), How(), Field(min_length=1, max_length=24, pattern="^[A-Za-z0-9_-]+$")
    ] = "swe-argo"
    """What the names of the tools begin with (ags)."""
    longest_life_s: Annotated[float, Flag("--ags-longest-life"), How(), Field(gt=0)] = 3600.0
    """Seconds that a sandbox of the account may live (ags)."""
    usd_per_hour: Annotated[float | None, Flag("--ags-price"), How(), Field(ge=0)] = None
    """Dollars that a sandbox costs an hour, of your bill; without it plan and report tell no cost (ags)."""


FLAT_FIELDS = {
    "local_images": ("local", "images"),
    "keep_images": ("docker", "keep_images"),
    "disk_budget_gb": ("docker", "disk_budget_gb"),
    "namespace": ("kubernetes", "namespace"),
    "kube_context": ("kubernetes", "context"),
    "node_selector": ("kubernetes", "node_selector"),
}
"""Fields that older files and stored runs have in the table ``sandbox`` itself -> where they are in it."""


def lift_flat_fields(sandbox: Mapping[str, Any]) -> dict[str, Any]:
    """The table ``sandbox`` with each field in its own place; what is said there already holds."""
    tables = {name: value for name, value in sandbox.items() if name not in FLAT_FIELDS}
    for name, (table, field) in FLAT_FIELDS.items():
        own = tables.get(table, {})
        stated = {each: getattr(own, each) for each in own.model_fields_set} if isinstance(own, Table) else own
        if name in sandbox and isinstance(stated, dict):  # what is no table is refused when it is checked
            tables[table] = {field: sandbox[name], **stated}
    return tables


class SandboxSpec(Table):
    """Where the agent works and the tests run. What is one backend's own stands in the table of its name."""

    backend: Annotated[str, Flag("--backend")] = "local"
    """local: folders here, isolated by bubblewrap. docker: one container a sandbox. kubernetes: one pod a sandbox.
    e2b: one microVM at E2B a sandbox. ags: one at Tencent Cloud Agent Sandbox. package.module:connect or
    path/to/file.py:connect: one of your own, docs/add-a-backend.md."""
    cpus: Annotated[float | None, Flag("--cpus"), Field(gt=0)] = None
    """CPU limit of a sandbox; none by default in docker, as in the official harness; the namespace's in kubernetes."""
    memory_mb: Annotated[int | None, Flag("--memory-mb"), Field(ge=64)] = None
    """Memory limit of a sandbox in MiB, default as for --cpus, local: 90 % of the machine's. Retries after running out
    double it."""
    disk_mb: Annotated[int | None, Flag("--disk-mb"), Field(ge=64)] = None
    """Disk a sandbox may fill in MiB, default: the namespace's (kubernetes), all but 1 GiB of what is free (local).
    Retries after running out double it."""
    solve_network: Annotated[bool, Flag("--solve-network/--no-solve-network")] = False
    """Let the agent's sandbox reach the network; the report says so."""
    registry: Annotated[str | None, Flag("--registry"), How()] = None
    """Pull images through this registry prefix, e.g. mirror.example:5000/hub."""
    platform: Annotated[str, Flag("--platform"), How()] = "linux/amd64"
    """Platform of the images (docker, kubernetes)."""
    allow_host: Annotated[bool, Flag("--allow-host/--no-allow-host"), How()] = False
    """Let an agent act without isolation: local without bubblewrap, kubernetes where no NetworkPolicy is in force."""
    resource_factor: Annotated[float, Flag("--resource-factor"), How(), Field(gt=0)] = 1.0
    """Multiplies the limits of every sandbox; retries after running out double it, up to 8 or to itself."""
    resource_factors: Annotated[str | None, Flag("--resource-factors"), File(), How()] = None
    """JSON file of {instance_id: factor}: other factors for some instances."""
    group_from_snapshot: Annotated[bool, Flag("--group-from-snapshot/--no-group-from-snapshot"), How()] = False
    """Attempts at one instance begin from one prepared sandbox, its history hidden: a group costs one preparation (e2b,
    ags; elsewhere each attempt prepares its own, and plan says so)."""
    local: LocalSpec = LocalSpec()
    docker: DockerSpec = DockerSpec()
    kubernetes: KubernetesSpec = KubernetesSpec()
    e2b: E2BSpec = E2BSpec()
    ags: AGSSpec = AGSSpec()

    @model_validator(mode="before")
    @classmethod
    def _lift_flat_fields(cls, value: object) -> object:
        """Put what stands in a former place into its own, where nothing is said there."""
        return lift_flat_fields(value) if isinstance(value, dict) else value

    @field_validator("backend", mode="before")
    @classmethod
    def _refuse_unknown_backend(cls, value: object) -> object:
        if value in BACKENDS or is_own_backend(value):
            return value
        raise unknown_choice(BACKENDS)
