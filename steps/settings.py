"""The only reader of the environment: where things are on this machine, never what a run is."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from pydantic import AliasChoices, Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from swe_argo.steps.contracts.log_levels import LOG_LEVELS
from swe_argo.steps.errors import ConfigError


class Settings(BaseSettings):
    """Environment variables, each under the name its users know."""

    # An engine that has nothing to say about a variable sets it to nothing.
    model_config = SettingsConfigDict(extra="ignore", env_ignore_empty=True)

    home: Path | None = Field(None, validation_alias="SWE_ARGO_HOME")
    """Where images for backend local and downloads are kept; swe-argo in the user's cache by default."""
    cache: Path = Field(Path("~/.cache"), validation_alias="XDG_CACHE_HOME")
    """The user's cache."""
    store: str | None = Field(None, validation_alias="SWE_ARGO_STORE")
    """Default of --store."""
    s3_endpoint: str | None = Field(None, validation_alias=AliasChoices("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"))
    """S3-compatible endpoint; AWS itself by default."""
    hf_endpoint: str = Field("https://huggingface.co", validation_alias="HF_ENDPOINT")
    """Hub that dataset ids are loaded from."""
    mini_base_image: str = Field("python:3.11-slim", validation_alias="SWE_ARGO_MINI_BASE")
    """Base of the mini images for backend docker: python3 with pytest, git and patch, or with apt and pip."""
    harbor_registry: Path | None = Field(None, validation_alias="SWE_ARGO_HARBOR_REGISTRY")
    """registry.json, or the folder it lies in, of --dataset harbor:<entry>."""
    revision: str | None = Field(None, validation_alias="SWE_ARGO_REVISION")
    """Commit of this project that an image was built from, where there is no checkout."""
    pod_name: str | None = Field(None, validation_alias="POD_NAME")
    """This pod, where a step runs in one (downward API): it owns the sandboxes that the step makes."""
    pod_uid: str | None = Field(None, validation_alias="POD_UID")
    """Its uid."""
    lease: str | None = Field(None, validation_alias="SWE_ARGO_LEASE", pattern="^[^/]+/[^/]+$")
    """Name and uid, with a slash between, of the Lease that owns the sandboxes of a runner outside the cluster."""
    hold: str | None = Field(None, validation_alias="SWE_ARGO_HOLD")
    """Token of the lock on the run, where the runner that started this step holds it."""
    reason_file: Path | None = Field(None, validation_alias="SWE_ARGO_REASON")
    """File for the one line that says why a step failed, where something reads one (Kubernetes' termination log)."""
    webhook: SecretStr | None = Field(None, validation_alias="SWE_ARGO_WEBHOOK")
    """Slack-compatible address that is told how a run compares with the one before it. A secret."""
    report_url: str | None = Field(None, validation_alias="SWE_ARGO_REPORT_URL")
    """What stands before runs/<run>/report/report.html in a link that a person can open."""
    view_token: SecretStr | None = Field(None, validation_alias="SWE_ARGO_VIEW_TOKEN")
    """What whoever looks at runs by ``swe-argo view`` has to show; needed where other machines reach it. A secret."""
    log_level: str = Field("INFO", validation_alias="LOG_LEVEL")
    """What steps print to stderr, which failed tries keep: with DEBUG a line for each call and each command, too."""
    isolation: str = Field("auto", validation_alias="SWE_ARGO_ISOLATION", pattern="^(auto|none)$")
    """auto: backend local uses bubblewrap where it works. none: never."""

    llm_base_url: str | None = Field(
        None, validation_alias=AliasChoices("LLM_BASE_URL", "OPENAI_BASE_URL", "OPENAI_API_BASE")
    )
    """OpenAI-compatible endpoint, where llm.base_url names none."""
    llm_api_key: SecretStr | None = Field(None, validation_alias=AliasChoices("LLM_API_KEY", "OPENAI_API_KEY"))
    """Its key; some endpoints need none."""
    proxy_url: str | None = Field(None, validation_alias="SWE_ARGO_PROXY_URL")
    """The namespace's own proxy: the endpoint where neither llm.base_url nor LLM_BASE_URL names one."""
    proxy_key: SecretStr | None = Field(None, validation_alias="SWE_ARGO_PROXY_KEY")
    """Its key, which no other endpoint is given."""
    credentials: str | None = Field(None, validation_alias="SWE_ARGO_CREDENTIALS")
    """Secret of the cluster that the keys of this process come from, by name."""
    model_gate: Path | None = Field(None, validation_alias="SWE_ARGO_GATE")
    """Unix socket of the runner that keeps the endpoint's limits over all of its units."""
    groups: Path | None = Field(None, validation_alias="SWE_ARGO_GROUPS")
    """Folder of the runner in which attempts at one instance find what the first of them prepared."""
    units: float | None = Field(None, validation_alias="SWE_ARGO_UNITS", gt=0)
    """How many units run at a time, where no such runner is: each keeps its share of the endpoint's limits."""

    tinker_api_key: SecretStr | None = Field(None, validation_alias="TINKER_API_KEY")
    """Key of the Tinker account that the proxy samples with and the learner learns with. A secret."""
    tinker_base_url: str | None = Field(None, validation_alias="TINKER_BASE_URL")
    """Address of a service that speaks Tinker's protocol; Tinker's own by default."""
    proxy_admin_key: SecretStr | None = Field(None, validation_alias="SWE_ARGO_PROXY_ADMIN_KEY")
    """Key by which the proxy's weights may be changed; the key of its callers is LLM_API_KEY. A secret."""
    wandb_api_key: SecretStr | None = Field(None, validation_alias="WANDB_API_KEY")
    """Key of the Weights & Biases account that figures of trainings are sent to; its other variables (WANDB_ENTITY,
    WANDB_BASE_URL, WANDB_DIR, ...) are its client's own. A secret."""
    wandb_project: str = Field("swe-argo", validation_alias="WANDB_PROJECT")
    """Project there."""
    wandb_mode: str | None = Field(None, validation_alias="WANDB_MODE", pattern="^(online|offline|shared|disabled)$")
    """offline: figures are kept in ./wandb until they are sent by ``wandb sync``, without any key; disabled: none."""

    e2b_api_key: SecretStr | None = Field(None, validation_alias="E2B_API_KEY")
    """Key of the E2B account whose sandboxes are used. A secret."""
    e2b_domain: str | None = Field(None, validation_alias="E2B_DOMAIN")
    """Domain of a self-hosted or compatible service; E2B's own by default."""
    e2b_api_url: str | None = Field(None, validation_alias="E2B_API_URL")
    """Its control plane, where that is not api.<domain>."""
    e2b_connection_timeout_s: float = Field(60.0, validation_alias="E2B_CONNECTION_TIMEOUT", gt=0)
    """Seconds that one request to it may take."""
    registry_username: str | None = Field(None, validation_alias="SWE_ARGO_REGISTRY_USERNAME")
    """User of the registry that templates are built from, where it is private."""
    registry_password: SecretStr | None = Field(None, validation_alias="SWE_ARGO_REGISTRY_PASSWORD")
    """Password or token for it, handed to the service that builds. A secret."""

    tencentcloud_secret_id: SecretStr | None = Field(None, validation_alias="TENCENTCLOUD_SECRET_ID")
    """Keys of the Tencent Cloud account whose sandboxes (AGS) are used. Secrets."""
    tencentcloud_secret_key: SecretStr | None = Field(None, validation_alias="TENCENTCLOUD_SECRET_KEY")
    """The other half."""
    tencentcloud_token: SecretStr | None = Field(None, validation_alias="TENCENTCLOUD_TOKEN")
    """With keys that hold for a time only."""
    tencentcloud_role_arn: str | None = Field(None, validation_alias="TENCENTCLOUD_ROLE_ARN")
    """Role by which AGS pulls images of the account's registries."""
    ags_region: str = Field("ap-guangzhou", validation_alias="AGS_REGION")
    """Where its sandboxes are."""
    ags_domain: str = Field("tencentags.com", validation_alias="AGS_DOMAIN")
    """What stands behind <sandbox>.<region>. in the address of a sandbox."""
    ags_endpoint: str | None = Field(None, validation_alias="AGS_ENDPOINT")
    """Its control plane, where that is not ags.tencentcloudapi.com."""
    ags_sandbox_url: str | None = Field(None, validation_alias="AGS_SANDBOX_URL")
    """One address of all its sandboxes, where a proxy stands before them."""
    ags_envd_image: str | None = Field(None, validation_alias="AGS_ENVD_IMAGE")
    """Image that holds /usr/bin/envd, for the tools that are made there."""

    argo_server: str | None = Field(None, validation_alias="ARGO_SERVER")
    """host:port of an argo-server to go through; the Kubernetes API by default."""
    argo_token: SecretStr | None = Field(None, validation_alias="ARGO_TOKEN")
    """Token for it."""
    argo_namespace: str | None = Field(None, validation_alias="ARGO_NAMESPACE")
    """Namespace there, where --namespace names none."""
    argo_base_href: str = Field("", validation_alias="ARGO_BASE_HREF")
    """Path that it is served under."""
    argo_secure: bool = Field(True, validation_alias="ARGO_SECURE")
    """Whether it speaks TLS."""
    argo_skip_verify: bool = Field(False, validation_alias="ARGO_INSECURE_SKIP_VERIFY")
    """Whether its certificate goes unchecked."""

    @field_validator("log_level", mode="before")
    @classmethod
    def _known_level(cls, value: object) -> object:
        level = str(value).strip().upper()
        if level not in LOG_LEVELS:
            raise ValueError(f"{value!r} is none of {', '.join(LOG_LEVELS)}")
        return level

    @field_validator(
        "llm_api_key",
        "proxy_key",
        "tinker_api_key",
        "wandb_api_key",
        "e2b_api_key",
        "tencentcloud_secret_id",
        "tencentcloud_secret_key",
        "tencentcloud_token",
        "argo_token",
        mode="before",
    )
    @classmethod
    def _fit_for_a_header(cls, value: object, info: ValidationInfo) -> object:
        """Without the newline that a file or a Secret ends with: clients show a header they refuse, key and all."""
        if not isinstance(value, str):
            return value
        if not (key := value.strip()):
            return None
        word = key.replace(" ", "", 1) if info.field_name == "argo_token" else key  # Bearer ..., Basic ...
        if not all("!" <= letter <= "~" for letter in word):
            raise ValueError("it holds a blank, a line break or what is not ASCII, as no key does: copy it again")
        return key

    @property
    def local_images(self) -> Path:
        """Default folder of unpacked images for backend local."""
        return self.home_folder / "images"

    @property
    def home_folder(self) -> Path:
        """``home``. Raises ConfigError for a user who has no home, as in a container with a user id of its own."""
        try:
            return (self.home or self.cache / "swe-argo").expanduser()
        except RuntimeError:
            raise ConfigError(
                "this user has no home folder: set SWE_ARGO_HOME to one that can be written", field="home"
            ) from None


@cache
def settings() -> Settings:
    """The settings of this process, read once. Raises ConfigError naming the variable that is wrong."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = _variable_of(str(first["loc"][0]))
        raise ConfigError(first["msg"].removeprefix("Value error, "), field=name) from None


def _variable_of(alias: str) -> str:
    """The variable that is set, of those that a setting may be read from: pydantic names the first of them."""
    for field in Settings.model_fields.values():
        if isinstance(choices := field.validation_alias, AliasChoices) and alias in choices.choices:
            return next((name for name in map(str, choices.choices) if os.environ.get(name)), alias)
    return alias


def has_variables(names: Iterable[str]) -> bool:
    """Whether all of these are set."""
    return all(os.environ.get(name, "").strip() for name in names)


def variables(names: Iterable[str], prefix: str) -> dict[str, str]:
    """Of the environment what is called one of ``names``, or begins with ``prefix``; what is empty is not there."""
    wanted_names = set(names)
    values = {name: value for name, value in os.environ.items() if name in wanted_names or name.startswith(prefix)}
    return {name: value for name, value in values.items() if value.strip()}
