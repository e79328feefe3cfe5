"""A Weights & Biases server: projects and runs over GraphQL, histories by the file stream.

Answers of the queries that wandb-core 0.31 sends (their texts stand in its binary), to the extent that it reads them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.http_server import Handler, serve

HISTORY, SUMMARY = "wandb-history.jsonl", "wandb-summary.json"
ENTITY = {"id": "1", "name": "us"}
VIEWER = {"id": "3", "entity": "us", "username": "us", "email": "", "flags": "{}", "teams": {"edges": []}}


@dataclass
class SentRun:
    """The data received for one run."""

    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)


@dataclass
class WandbServer:
    """``runs``: (project, id) -> received data."""

    address: str = ""
    runs: dict[tuple[str, str], SentRun] = field(default_factory=dict)
    status: int = 200
    """The status of every answer."""
    unknown: list[str] = field(default_factory=list)
    """Queries and paths that this server does not know."""

    def answer_query(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the data of an answer."""
        if "UpsertBucket" in query:
            return {"upsertBucket": self._upsert(variables)}
        if "RunResumeStatus" in query:
            run = self.runs.get((variables["project"], variables["name"]))
            bucket = run and self._bucket(variables["project"], variables["name"], run)
            return {"model": {"id": "2", "name": variables["project"], "entity": ENTITY, "bucket": bucket}}
        if "Viewer" in query:
            return {"viewer": VIEWER}
        if "ServerFeatures" in query:
            return {"serverInfo": {"features": []}}
        if "CreateRunFiles" in query:
            return {"createRunFiles": {"runID": "4", "uploadHeaders": [], "files": []}}
        self.unknown.append(query)
        return {}

    def _upsert(self, variables: dict[str, Any]) -> dict[str, Any]:
        name = (variables["project"], variables["name"])
        inserted = name not in self.runs
        run = self.runs.setdefault(name, SentRun())
        run.config |= json.loads(variables.get("config") or "{}")
        return {"bucket": self._bucket(*name, run), "inserted": inserted}

    def _bucket(self, project: str, name: str, run: SentRun) -> dict[str, Any]:
        about = {"id": "5", "name": name, "displayName": name, "description": "", "sweepName": None, "notes": ""}
        counts = {"historyLineCount": len(run.history), "eventsLineCount": 0, "logLineCount": 0, "tags": []}
        return {
            **about,
            **counts,
            "project": {"id": "2", "name": project, "entity": ENTITY},
            "config": json.dumps(run.config),
            "summaryMetrics": json.dumps(run.summary),
            "historyTail": json.dumps([json.dumps(row) for row in run.history[-1:]]),
            "eventsTail": "[]",
            "wandbConfig": '{"t": 1}',
        }

    def stream(self, project: str, name: str, files: dict[str, Any]) -> None:
        """Store what the file stream sends: lines at an offset."""
        run = self.runs[project, name]
        history = files.get(HISTORY)
        if history:
            lines = [json.loads(line) for line in history["content"]]
            run.history[history["offset"] : history["offset"] + len(lines)] = lines
        for line in files.get(SUMMARY, {}).get("content", []):
            run.summary = json.loads(line)


@contextmanager
def wandb_server() -> Iterator[WandbServer]:
    """Serve without any runs."""
    server = WandbServer()

    class Wandb(Handler):
        def respond(self) -> None:
            if server.status != 200:
                self.body()
                return self.answer(server.status, {"error": "not today"})
            body = json.loads(self.body() or b"{}")
            if self.path == "/graphql":
                return self.answer(200, {"data": server.answer_query(body["query"], body.get("variables") or {})})
            parts = self.path.strip("/").split("/")
            if parts[0] == "files" and parts[-1] == "file_stream":
                server.stream(parts[2], parts[3], body.get("files") or {})
                return self.answer(200, {})
            server.unknown.append(self.path)
            return self.answer(404)

    with serve(Wandb) as address:
        server.address = address
        yield server
