"""Backend e2b: one microVM per sandbox, at E2B or a compatible service."""
