"""Planning: build a spec, resolve it, reject specs that cannot work, and write the run's first files."""
