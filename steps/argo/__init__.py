"""The view of Argo Workflows, the engine on a cluster, on a run's steps: children, nodes, reasons of failures."""
