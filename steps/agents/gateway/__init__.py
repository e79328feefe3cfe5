"""The model gateway: it carries an agent program's model calls out of a sandbox that has no network.

``steps/gateway/program`` is its part inside the sandbox. Imported by ``agents.program``. Begin with ``channel.py``.
"""
