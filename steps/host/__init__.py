"""Resources of this machine: folders named after the process that owns them, their removal, control groups."""
