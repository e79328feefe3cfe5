"""A rollout inside a trainer's process: its task, sandbox, tools, verdict and reward.

Independent of the trainer: ``swe_argo.workflows.verl`` and ``swe_argo.workflows.verifiers`` are built on it.
"""
