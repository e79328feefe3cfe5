"""Log levels of programs, from most to least output."""

from __future__ import annotations

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL")
