"""The chain inside verl's processes: a rollout's sandbox, its grading, verl's own classes on top; and verl's data.

Only ``tools``, ``tool_loop`` and ``scaffold_loop`` import verl; nothing but verl imports them (``swe_argo.verl`` names
their classes).
"""
