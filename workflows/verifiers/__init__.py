"""Rollouts as an environment of PrimeIntellect's verifiers 0.4: tasks, who works on them, their rewards.

All of it imports verifiers; nothing but verifiers imports it, by the module ``swe_argo_verifiers``.
"""
