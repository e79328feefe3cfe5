"""The Python API: read, compare and start runs. The command line uses it, too."""
