"""The files of agent programs: recipes read, bundles made, kept on this machine, and found again."""
