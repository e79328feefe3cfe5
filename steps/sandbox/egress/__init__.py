"""The egress proxy: a sandbox without a network reaches exactly the hosts of an allowlist.

A program in the sandbox accepts connections and carries them over its job's input and output to this process, which
decides about each (``rules``) and connects to the host itself (``relay``). Begin with ``relay.EgressProxy``.
"""
