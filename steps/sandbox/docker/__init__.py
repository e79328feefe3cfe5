"""Backend docker: one container per sandbox, on the engine that `docker` would use."""
