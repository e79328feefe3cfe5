"""Engines that run the steps (this machine, Argo Workflows), the Python API and the command line."""
