"""One rollout inside a trainer's process: its task, its sandbox, what a model may do in it, its verdict and reward.

It knows no trainer: ``swe_argo.workflows.verl`` and ``swe_argo.workflows.verifiers`` stand on it.
"""
