"""Backend kubernetes: one pod per sandbox, commands as detached jobs over short execs."""
