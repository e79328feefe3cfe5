"""``mini``: a dozen small bugs in repositories written for this project, as a swebench 5 task repo.

``data/`` is that task repo: ``repos/<name>`` is the source of a repository with all its bugs fixed,
``tasks/<instance_id>`` an instance in the form of swebench/task/repo.py. The repository of an instance is made from
both, with the same commits on every machine: the sources without the instance's own patches. swebench's own
``--task-repo`` cannot build the images, because their Dockerfiles need that repository beside them; ``build`` puts it
there.

``mini-<family>`` has a few of these issues in the form of another family of tasks (``forms``).
"""

from __future__ import annotations

from swe_argo.steps.datasets.mini.containers import build
from swe_argo.steps.datasets.mini.content import HARBOR_TASKS, TASK_REPO
from swe_argo.steps.datasets.mini.folders import prepare
from swe_argo.steps.datasets.mini.forms import digest, materialise, read_rows

__all__ = ["HARBOR_TASKS", "TASK_REPO", "build", "digest", "materialise", "prepare", "read_rows"]
