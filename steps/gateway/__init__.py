"""The gateway's program for sandboxes without a network (``program/``, in Go), and its binaries.

It carries model calls (``agents.gateway``) and the connections of the egress proxy (``sandbox.egress``) over the input
and output of its job, which ``sandbox.gateway_job`` starts.
"""
