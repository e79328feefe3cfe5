"""Backend e2b: one microVM per sandbox, at E2B or at a service that speaks its protocol."""
