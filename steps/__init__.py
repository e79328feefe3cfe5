"""swe-argo: the steps of an evaluation, one module a container."""
