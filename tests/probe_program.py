"""A program that prints the state it started in, or ends in a given way."""

from __future__ import annotations

import atexit
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path


def facts() -> dict[str, object]:
    """Return the state that could differ between a forked and a started program, as JSON."""
    main = sys.modules["__main__"]
    umask = os.umask(0)
    os.umask(umask)
    return {
        "words": [str(Path(sys.argv[0]).resolve()), *sys.argv[1:]],
        "folder": str(Path.cwd()),
        "path": sys.path,
        "environment": dict(os.environ),
        "main": [main.__name__, main.__package__, str(Path(main.__file__ or "").resolve()), main.facts is facts],
        "descriptors": [item for item in range(64) if Path(f"/proc/self/fd/{item}").exists()],
        "standard input": sys.stdin.read(),
        "encodings": [f"{item.encoding} {item.errors} {item.line_buffering}" for item in (sys.stdout, sys.stderr)],
        "signals": {item.name: str(signal.getsignal(item)).partition(" at ")[0] for item in signal.Signals},
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "umask": umask,
        "threads": [item.name for item in threading.enumerate()],
        "children": Path("/proc/thread-self/children").read_text(),
        "logging": [logging.getLogger().level, str(logging.getLogger().handlers), logging.root.manager.disable],
        "flags": str(sys.flags),
        "options": [sys.warnoptions, sys._xoptions],
    }


def main(end: str, *_: str) -> None:
    """Print the state (``tell``), or end in the named way."""
    atexit.register(print, "at exit")
    if end == "tell":
        atexit.unregister(print)
        sys.stdout.write(json.dumps(facts()))
    elif end == "word":
        sys.exit("a word")
    elif end == "code":
        sys.exit(76)
    elif end == "raise":
        raise ValueError("a reason")
    elif end == "thread":
        threading.Timer(0.1, print, ["from a thread"]).start()
    elif end.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[end])


if __name__ == "__main__":
    main(*sys.argv[1:])
