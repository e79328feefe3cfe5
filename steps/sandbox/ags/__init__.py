"""Backend ags: one sandbox of Tencent Cloud Agent Sandbox each, whose data plane is that of E2B."""
