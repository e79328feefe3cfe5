"""The plan step's checks of a cluster, one module per check.

Imported by the backend and by ``workflows.argo``. Begin with ``check_cluster`` in ``admission.py``.
"""
