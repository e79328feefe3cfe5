"""Backend ags: sandboxes of Tencent Cloud Agent Sandbox, whose data plane is E2B's."""
