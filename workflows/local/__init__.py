"""The local engine: runs and trainings as processes on this machine."""
