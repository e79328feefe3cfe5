"""``mini``: a dozen small bugs in repositories written for this project, as a swebench 5 task repo.

``data/`` is that task repo. In it ``repos/<name>`` is the source of a repository as it is when all its bugs are fixed,
``tasks/<instance_id>`` an instance in the form of swebench/task/repo.py. From the two the repository of an instance is
made anew, the same commits on every machine: the sources with the instance's own patches taken out. swebench's own
``--task-repo`` cannot build the images, as their Dockerfiles want that repository beside them; ``build`` puts it there.

``mini-<family>`` has a few of these issues in the form of another family of tasks (``forms``).
"""

from __future__ import annotations

from swe_argo.steps.datasets.mini.containers import build
from swe_argo.steps.datasets.mini.content import HARBOR_TASKS, TASK_REPO
from swe_argo.steps.datasets.mini.folders import prepare
from swe_argo.steps.datasets.mini.forms import digest, materialise, read_rows

__all__ = ["HARBOR_TASKS", "TASK_REPO", "build", "digest", "materialise", "prepare", "read_rows"]
