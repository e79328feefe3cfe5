"""One rollout inside a trainer's process: its task, its sandbox, what a model may do in it, its verdict and reward.

It knows no trainer: ``workflows.verl`` and ``workflows.verifiers`` stand on it.
"""
