"""``swe-argo view``: the runs of a store in a browser, live while they work."""
