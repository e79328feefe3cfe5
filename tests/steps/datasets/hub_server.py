"""A hub on this machine: the part of the Hugging Face Hub's HTTP protocol by which repositories are read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from tests.http_server import Handler, serve


@dataclass
class Repo:
    """A repository, of a dataset or a model: branches and tags name commits, and a commit is files."""

    commits: dict[str, dict[str, bytes]]
    refs: dict[str, str]
    error: tuple[int, str, str] | None = None
    """status, X-Error-Code, X-Error-Message of every answer."""
    busy: dict[str, list[tuple[int, dict[str, str]]]] = field(default_factory=dict)
    """Part of a path -> status and headers of the first answers to it."""
    token: str = ""
    """Who does not give this one is told that the repository is gated."""
    broken: frozenset[str] = frozenset()
    """Paths whose content is cut off in the middle, the connection closed."""


@dataclass
class Hub:
    """What the server serves, and what it was asked."""

    repos: dict[str, Repo] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    endpoint: str = ""
    retry_after: str = ""
    """The header Retry-After of every error answer."""
    refuses: str = ""
    """Part of the paths that are answered with 403 (which the clients, unlike a 500, do not try again for 20 s)."""


def _handler(hub: Hub) -> type[Handler]:
    class Pages(Handler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            hub.requests.append(format % args)

        def _error(self, status: int, code: str, message: str) -> None:
            wait = {"Retry_After": hub.retry_after} if hub.retry_after else {}
            self.answer(status, {"error": message}, X_Error_Code=code, X_Error_Message=message, **wait)

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            raw = self.body()
            parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
            if parts[:2] == ["api", "datasets"] and len(parts) == 6 and parts[4] == "paths-info":
                commit = self._commit("/".join(parts[2:4]), parts[5])
                if commit:
                    paths = (
                        json.loads(raw)["paths"]
                        if "json" in self.headers.get("Content-Type", "")
                        else parse_qs(raw.decode()).get("paths", [])
                    )
                    files = commit[1]
                    self.answer(
                        200,
                        [_file(path, files[path]) for path in paths if path in files]
                        + [_folder(path) for path in paths if any(name.startswith(f"{path}/") for name in files)],
                    )
                return
            self._error(404, "", "no such page")

        def _commit(self, repo_id: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
            repo = hub.repos.get(repo_id)
            if repo is None:
                self._error(401, "RepoNotFound", "Repository not found")
                return None
            if repo.error:
                self._error(*repo.error)
                return None
            if met := next((answers for part, answers in repo.busy.items() if part in self.path and answers), None):
                status, headers = met.pop(0)
                self.answer(status, {"error": "busy"}, **headers)
                return None
            if repo.token and self.headers.get("Authorization") != f"Bearer {repo.token}":
                self._error(401, "GatedRepo", "Access to this repository is restricted")
                return None
            sha = repo.refs.get(revision, revision)
            if sha not in repo.commits:
                self._error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
                return None
            return sha, repo.commits[sha]

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if hub.refuses and hub.refuses in url.path:
                self._error(403, "", "Forbidden")
                return
            parts = [unquote(part) for part in url.path.strip("/").split("/")]
            if parts[0] == "api" and parts[1] in ("datasets", "models") and len(parts) >= 4:
                self._api("/".join(parts[2:4]), parts[4:], parse_qs(url.query))
            elif len(parts) >= 5 and parts[2] == "resolve":  # models have no word before their id
                self._resolve("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
            elif parts[0] == "datasets" and len(parts) >= 6 and parts[3] == "resolve":
                self._resolve("/".join(parts[1:3]), parts[4], "/".join(parts[5:]))
            else:
                self._error(404, "", "no such page")

        def _api(self, repo_id: str, parts: list[str], query: dict[str, list[str]]) -> None:
            revision = parts[1] if len(parts) > 1 else "main"
            commit = self._commit(repo_id, revision)
            if commit is None:
                return
            sha, files = commit
            if not parts or parts[0] == "revision":
                siblings = [{"rfilename": name} for name in sorted(files)]
                self.answer(
                    200,
                    {"_id": sha[:24], "id": repo_id, "sha": sha, "private": False, "siblings": siblings, "tags": []},
                )
            elif parts[0] == "tree":
                self._tree(files, "/".join(parts[2:]), query.get("recursive", ["false"])[0].lower() == "true")
            else:
                self._error(404, "", "no such page")

        def _tree(self, files: dict[str, bytes], under: str, recursive: bool) -> None:
            prefix = f"{under}/" if under else ""
            inside = sorted(name for name in files if name.startswith(prefix))
            if under and not inside:
                self._error(404, "EntryNotFound", f"{under} does not exist")
                return
            entries: dict[str, dict[str, object]] = {}
            for name in inside:
                steps = name.removeprefix(prefix).split("/")
                for depth in range(1, len(steps) if recursive else min(len(steps), 2)):
                    folder = prefix + "/".join(steps[:depth])
                    entries.setdefault(folder, _folder(folder))
                if recursive or len(steps) == 1:
                    entries[name] = _file(name, files[name])
            self.answer(200, list(entries.values()))

        def _resolve(self, repo_id: str, revision: str, path: str) -> None:
            commit = self._commit(repo_id, revision)
            if commit is None:
                return
            sha, files = commit
            if path not in files:
                self._error(404, "EntryNotFound", "Entry not found")
                return
            body = files[path]
            if path in hub.repos[repo_id].broken and self.command == "GET":
                self.answer(200, body[: len(body) // 2], Content_Length=str(len(body)), X_Repo_Commit=sha)
                self.close_connection = True
                return
            headers = {"ETag": f'"{_oid(body)}"', "X_Repo_Commit": sha, "Accept_Ranges": "bytes"}
            byte_range = self.headers.get("Range")
            if byte_range and self.command == "GET":
                first, _, last = byte_range.removeprefix("bytes=").partition("-")
                start, end = int(first or 0), min(int(last or len(body) - 1), len(body) - 1)
                self.answer(206, body[start : end + 1], Content_Range=f"bytes {start}-{end}/{len(body)}", **headers)
            else:
                self.answer(200, body, **headers)

    return Pages


def _oid(body: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(body) + body, usedforsecurity=False).hexdigest()


def _file(path: str, body: bytes) -> dict[str, object]:
    return {"type": "file", "path": path, "size": len(body), "oid": _oid(body)}


def _folder(path: str) -> dict[str, object]:
    return {"type": "directory", "path": path, "size": 0, "oid": _oid(path.encode())}


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Serve ``hub`` on a free port of this machine; its ``endpoint`` says where."""
    with serve(_handler(hub)) as hub.endpoint:
        yield hub
