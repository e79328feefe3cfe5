"""Backend docker: one container a sandbox, on the engine that `docker` would use."""
