"""Backend kubernetes: one pod a sandbox, commands as detached jobs over short execs."""
