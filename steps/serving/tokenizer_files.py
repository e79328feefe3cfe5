"""Lookup of a model's tokenizer and chat template: a local folder, else a download from the hub."""

from __future__ import annotations

import re
from pathlib import Path

import huggingface_hub
from huggingface_hub import errors
from huggingface_hub.utils.tqdm import disable_progress_bars

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.settings import settings

NEEDED = ("tokenizer.json", "tokenizer_config.json")
FILES = (*NEEDED, "chat_template.jinja", "generation_config.json")
"""Files that ChatTemplate reads; weights are never downloaded."""
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_FIELD = "--tokenizer"


def find_tokenizer(name: str) -> Path:
    """Return the folder of that name, or the hub's current files under that id (``owner/name``).

    Downloads go to the hub's own cache (HF_HOME) with HF_TOKEN; cached files are used if the hub does not answer, or
    with HF_HUB_OFFLINE. Raises ConfigError if it does not exist or may not be read, InfraError (storage) if the hub
    cannot be reached.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if not HUB_ID.fullmatch(name):
        raise ConfigError(f"{name} is neither a folder nor a hub id (owner/name)", field=_FIELD)
    endpoint = settings().hf_endpoint.rstrip("/")
    files = _download(name, endpoint)
    if missing := [file for file in NEEDED if not (files / file).is_file()]:
        raise ConfigError(
            f"{name} on {endpoint} has no {' and no '.join(missing)}: create them in a folder and give that folder",
            field=_FIELD,
        )
    return files


def _download(name: str, endpoint: str) -> Path:
    """Return the folder with the files from the hub or its cache. Raises what ``find_tokenizer`` raises."""
    disable_progress_bars()
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=list(FILES), endpoint=endpoint))
    except errors.GatedRepoError as error:
        raise _refused(f"{name} on {endpoint} is gated: request access on its page and set HF_TOKEN") from error
    except errors.RepositoryNotFoundError as error:
        raise _refused(
            f"there is no folder {name}, and {endpoint} has no such model; if it is private, set HF_TOKEN"
        ) from error
    except errors.LocalEntryNotFoundError as error:
        if huggingface_hub.constants.HF_HUB_OFFLINE:
            raise _refused(f"HF_HUB_OFFLINE is set, but {name} is not in the cache (HF_HOME): give a folder") from error
        raise _unreachable(name, endpoint, error.__cause__ or error) from error
    except errors.HfHubHTTPError as error:
        if error.response is not None and error.response.status_code == 401:
            raise _refused(f"HF_TOKEN is not valid on {endpoint}, which was asked for {name}") from error
        raise _unreachable(name, endpoint, error) from error
    except OSError as error:
        # The error is about a local file, not about the network.
        if error.filename is not None:
            raise _refused(f"the hub's cache cannot be used: {error}; set HF_HOME") from error
        raise _unreachable(name, endpoint, error) from error
    except (errors.HTTPError, ValueError) as error:  # type: ignore[attr-defined]
        raise _unreachable(name, endpoint, error) from error


def _refused(reason: str) -> ConfigError:
    return ConfigError(reason, field=_FIELD)


def _unreachable(name: str, endpoint: str, error: BaseException) -> InfraError:
    """Return the error of a failed download, with the first line of its message."""
    line = next((line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return InfraError(
        FailureClass.STORAGE,
        f"the tokenizer {name} cannot be downloaded from {endpoint}: {line}. Set HF_ENDPOINT or give a folder",
    )
