"""Rows of a dataset on the Hugging Face Hub, or on whatever hub HF_ENDPOINT names, read by the ``datasets`` library."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from steps.contracts.failure import FailureClass
from steps.datasets import names
from steps.datasets.files import list_rows, read_folder
from steps.datasets.records import SourcedValue
from steps.errors import ConfigError, InfraError, ResourceError
from steps.settings import settings

_FIELD = "dataset"
_TIMEOUT_S = 60.0
_CONFIGS = re.compile(r"\bconfigs: \[(.*?)\]|BuilderConfig .* not found. Available: \[(.*?)\]")


def read_hub(hub_id: str, split: str, revision: str | None) -> tuple[Iterable[SourcedValue], str]:
    """The rows of ``split`` and the commit they are of: ``revision`` (a commit, tag or branch), by default main.

    ``hub_id`` is ``<owner>/<name>``, with ``:<config>`` behind it for a dataset of several configurations.

    Only the files of that split are downloaded, into the library's own cache. With HF_HUB_OFFLINE set the hub is not
    asked, and the cached files of that commit are read. Raises ConfigError where the dataset, revision or split does
    not exist or may not be read, InfraError (storage) where the hub cannot be reached.
    """
    hub_id, _, config = hub_id.partition(":")
    endpoint = settings().hf_endpoint.rstrip("/")
    datasets, huggingface_hub = _libraries(endpoint)
    with _explained(hub_id, revision, endpoint):
        if huggingface_hub.constants.HF_HUB_OFFLINE:
            return _cached(huggingface_hub, hub_id, split, revision)
        api = huggingface_hub.HfApi(endpoint=endpoint)
        commit = str(api.dataset_info(hub_id, revision=revision, timeout=_TIMEOUT_S).sha)
        files = _files_of_split(_builder(datasets, hub_id, commit, name=config or None), hub_id, split, commit)
        builder = _builder(datasets, hub_id, commit, name=config or None, data_files={split: files})
        # The card's row counts are of all splits; each file's integrity is the hub's own ETag and size.
        builder.download_and_prepare(verification_mode="no_checks")
        table = builder.as_dataset(split=split).with_format("arrow")[:]
    return (SourcedValue(f"{hub_id}, row {number}", row) for number, row in enumerate(list_rows(table), 1)), commit


def _libraries(endpoint: str) -> tuple[Any, Any]:
    try:
        import datasets
        import huggingface_hub
        from huggingface_hub.utils.tqdm import disable_progress_bars
    except ImportError:
        raise ConfigError(
            "a hub id needs the package datasets: pip install 'swe-argo[hub]', or give a local file", field=_FIELD
        ) from None
    # Both read HF_ENDPOINT when they are first imported, by whomever; every place in ``datasets`` looks it up here.
    datasets.config.HF_ENDPOINT = endpoint
    datasets.config.HUB_DATASETS_URL = endpoint + "/datasets/{repo_id}/resolve/{revision}/{path}"
    datasets.disable_progress_bars()
    disable_progress_bars()
    return datasets, huggingface_hub


def _builder(datasets: Any, hub_id: str, commit: str, **more: Any) -> Any:
    # hf://: never a folder of that name, which a bare id would prefer.
    builder = datasets.load_dataset_builder(f"hf://datasets/{hub_id}", revision=commit, **more)
    if builder.hash != commit:
        # When the hub fails between two requests, the library takes any commit it has in its cache without a word.
        raise ConnectionError(f"the files of commit {commit} could not be listed")
    return builder


def _files_of_split(builder: Any, hub_id: str, split: str, commit: str) -> list[str]:
    urls = {str(name): list(files) for name, files in (builder.config.data_files or {}).items()}
    if split not in urls:
        raise ConfigError(f"{hub_id} has no split {split!r}; it has {', '.join(sorted(urls))}", field="split")
    return [url.partition(f"@{commit}/")[2] for url in urls[split]]


def _cached(huggingface_hub: Any, hub_id: str, split: str, revision: str | None) -> tuple[Iterable[SourcedValue], str]:
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = huggingface_hub.snapshot_download(
            hub_id, repo_type="dataset", revision=revision, local_files_only=True
        )
    except LocalEntryNotFoundError:
        raise ConfigError(
            f"HF_HUB_OFFLINE is set and {hub_id} at {revision or 'main'} is not in the cache: "
            "pin the cached commit with --revision, give a local file, or unset HF_HUB_OFFLINE",
            field=_FIELD,
        ) from None
    return read_folder(Path(folder), split), Path(folder).name


@contextmanager
def _explained(hub_id: str, revision: str | None, endpoint: str) -> Iterator[None]:
    """Turn what the two libraries raise into one line that names the thing and the way out."""
    from datasets.exceptions import DatasetsError
    from huggingface_hub import errors

    where = f"on {endpoint}"
    try:
        yield
    except errors.GatedRepoError as error:
        raise ConfigError(
            f"{hub_id} {where} is gated: ask for access on its page and set HF_TOKEN", field=_FIELD
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ConfigError(
            f"there is no dataset {hub_id} {where}{names.did_you_mean(hub_id)}, or it is private: then set HF_TOKEN. "
            f"A dataset is {names.FORMS}",
            field=_FIELD,
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ConfigError(f"{hub_id} {where} has no commit, tag or branch {revision!r}", field="revision") from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        message = f"the hub answered {status} for {hub_id}: {_line(error)}"
        if status == 401:
            raise ConfigError(f"{message}: HF_TOKEN is not valid {where}", field=_FIELD) from error
        if status in (408, 429) or status >= 500 or status == 0:
            raise _dataset_failure(f"{message} ({endpoint})", error) from error
        raise ConfigError(f"{message}. Is HF_ENDPOINT={endpoint} a hub, and HF_TOKEN right?", field=_FIELD) from error
    except (OSError, errors.HTTPError, DatasetsError, ValueError) as error:  # type: ignore[attr-defined]
        _refuse_cache(error)
        if configs := _CONFIGS.search(str(error)):
            reason = f"{hub_id} {where} has the configurations {configs[1] or configs[2]}: name one, {hub_id}:CONFIG"
            raise ConfigError(reason, field=_FIELD) from error
        if _is_about_data(error):
            raise ConfigError(f"{hub_id} {where} cannot be read: {_line(error)}", field=_FIELD) from error
        raise _dataset_failure(
            f"cannot reach the hub at {endpoint} for {hub_id}: {_line(error)}. Set HF_ENDPOINT to a mirror, "
            "HF_HUB_OFFLINE=1 to use the cache, or give a local file",
            error,
        ) from error


def _is_about_data(error: Exception) -> bool:
    """Whether the hub answered, and what it has is no dataset; else the network failed (httpx's errors among them)."""
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import LocalEntryNotFoundError

    # Neither the hub nor the cache gave a file; the second is what ``datasets`` says of its cache then.
    if isinstance(error, LocalEntryNotFoundError) or "Couldn't find cache" in str(error):
        return False
    return isinstance(error, DatasetsError | ValueError | FileNotFoundError)


def _refuse_cache(error: Exception) -> None:
    """Raise where the files of this machine are at fault, not the network."""
    if not isinstance(error, OSError):
        return
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        raise ResourceError(FailureClass.OUT_OF_DISK, f"no space for the dataset in the cache (HF_HOME): {error}")
    if error.filename is not None:
        raise ConfigError(f"the cache of datasets cannot be used, set HF_HOME: {error}", field=_FIELD) from error


def _dataset_failure(reason: str, error: Exception) -> InfraError:
    return InfraError(FailureClass.STORAGE, reason, detail=f"{type(error).__name__}: {error}")


def _line(error: Exception) -> str:
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return first.rstrip(".") or type(error).__name__
