"""What each step may take: the only such numbers, for this machine and for every cluster."""

from __future__ import annotations

from dataclasses import dataclass

from swe_argo.steps.contracts.run_spec import RunSpec

CREATE_S = 1800.0
"""Seconds to pull an image and start a sandbox."""


RUNS = 2
"""Official test runs of one grade, at most: a second one if the first is in doubt."""
CONFIRMING_RUNS = 15
"""Further test runs of a grade, at most: 5 validate an instance's sites, 6 confirm its patch, 4 explain surprises."""
NEIGHBOUR_RUNS = 10
"""Further runs with neighbour inputs, at most: 7 validate them, 1 tries the patch, 2 explain surprises."""
NEIGHBOUR_SHARE = 5
"""The tests of such a run may take this part of their limit (``swe_argo.steps.grading.twins.neighbours``)."""
CONFIRMING_CREATE_S = 300.0
"""Seconds to start the sandbox of such a run, whose image is there by then."""

OUTAGE_S = 900.0
"""Seconds that a try is held back while its engine does not answer."""

OUTAGE_POLL_S = 2.0

STORE_OUTAGE_S = 600.0
"""Seconds that a finished step's files are offered to a store that fails."""


@dataclass(frozen=True)
class Retry:
    """Backoff between tries of a step after exit 75 or 76, or after it was killed."""

    limit: int
    first_s: float = 2.0
    factor: float = 2.0
    cap_s: float = 60.0

    def pause_s(self, failures: int) -> float:
        """Seconds to wait after this many failures (from 1)."""
        return float(min(self.first_s * self.factor ** (failures - 1), self.cap_s))


def retry(spec: RunSpec) -> Retry:
    """How often a step is tried again."""
    return Retry(limit=spec.retries)


def deadline_s(step: str, spec: RunSpec) -> float:
    """Seconds one try of a step may take in all: its sandbox, its work, and room for its own bookkeeping.

    In iterative mode each attempt of a solve has a sandbox of its own; the agent's time is for all of them.
    """
    if step != "solve":
        limit_s = spec.grading.timeout_s
        confirming_s = CONFIRMING_RUNS * (CONFIRMING_CREATE_S + limit_s)
        confirming_s += NEIGHBOUR_RUNS * (CONFIRMING_CREATE_S + limit_s / NEIGHBOUR_SHARE)
        official_s = RUNS * (CREATE_S + spec.grading.timeout_s) + 600.0
        return official_s + (confirming_s if spec.grading.confirm != "never" else 0.0)
    attempts = spec.agent.iterative_max_attempts if spec.agent.iterative else 1
    return attempts * CREATE_S + spec.agent.timeout_s + 600.0


# -- on Argo ---------------------------------------------------------------------------------------------------------
# Deadlines stand on each other: what works < its step's pod < that pod's sandbox; all tries of all units of a shard, in
# the waves that its window makes, < the shard < the run. A step that ended at the limit of its tests would turn a
# verdict (tests timed out) into a failure of the infrastructure.

MAX_AGENT_S = 3600
"""The longest an agent may work there."""
MAX_TESTS_S = 1800
"""The longest tests may run there: the official limit."""
PIPELINE_LIMITS = {"agent.timeout_s": MAX_AGENT_S, "grading.timeout_s": MAX_TESTS_S}
"""The same, by the fields of the spec."""
LOCAL = ("max_cost_usd", "give_up_after", "llm.config", "sandbox.e2b.templates", "sandbox.ags.mapping")
"""Fields of the spec that no pod can keep: none knows what the others cost or came to, or a file of a person's
machine."""


@dataclass(frozen=True)
class Pod:
    """What the pod of a step asks for. Memory is limited, CPU is not: a step mostly waits for its sandbox."""

    cpu: str
    memory: str
    memory_limit: str
    deadline_s: int


PODS = {
    "plan": Pod("250m", "512Mi", "4Gi", 1800),
    "list": Pod("10m", "16Mi", "128Mi", 1800),
    "solve": Pod("100m", "192Mi", "2Gi", 5400),
    "grade": Pod("100m", "192Mi", "2Gi", 13 * 3600),
    "canary": Pod("50m", "128Mi", "1Gi", 600),
    "report": Pod("250m", "512Mi", "4Gi", 1800),
    "compare": Pod("50m", "128Mi", "1Gi", 600),
    "finalize": Pod("100m", "256Mi", "4Gi", 1200),
    "plan_training": Pod("250m", "512Mi", "4Gi", 1800),
    "plan_round": Pod("100m", "256Mi", "2Gi", 1800),
    "learn": Pod("500m", "1Gi", "16Gi", 6 * 3600),
    "halt": Pod("50m", "128Mi", "1Gi", 1800),
}
"""Step -> its pod."""

WAITER = Pod("10m", "64Mi", "256Mi", 0)
"""What waits for a shard is Argo's own program, sized by its settings (``executor.resources``): a guess."""

PENDING = "15m"
"""How long a pod may wait for a node and its image."""

SHARD_UNITS = 44
"""Units of a shard: with all their tries used up, its Workflow stays below 1 MiB before compression."""
WINDOW = 10
"""Units of a shard that are begun at a time."""
SHARDS = 64
"""Shards of a run that are begun at a time; what runs at all is the semaphores' to say."""
SHARD_S = 108 * 3600
RUN_S = 7 * 24 * 3600
"""At 50 units a time, 20,000 units take six days."""
ROUND_S = 2 * RUN_S + 24 * 3600
"""A step of a training: a run, what is learnt of it, a measurement."""
TRAIN_S = 180 * 24 * 3600

TRIES_PAUSE = "30s"
"""Between the first two tries."""
OUTAGES = 5
"""Further tries of a step that an outage ended: each waits for its end by itself, some ten minutes."""
PLAN_PAUSE = "10s"
"""For plan: a person waits for the answer that a spec is wrong."""
CHILD_PAUSE = "5s"
"""The same for the pod that waits for a shard: a shard with units that failed is a failed one, every time."""
TRIES_GROWTH = (2, "10m")
"""Factor of the pauses that follow, and their cap."""
