"""``python -m tests.model_server --port N --script FILE.json``: the server as a program, for pods and benches.

It prints its base_url when it is ready; ``GET /counts`` returns its totals.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from tests.model_server.scripts import from_file
from tests.model_server.serving import FORMATS, ModelServer


async def _serve(server: ModelServer, host: str, port: int) -> None:
    listening = await server.start(host, port)
    sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    async with listening:
        await listening.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.model_server")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", type=Path, required=True, help="JSON, as tests.model_server.scripts reads it")
    parser.add_argument("--key", help="what clients must show")
    parser.add_argument("--model", action="append", default=[], help="a model that it knows; any by default")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--protocol", action="append", choices=FORMATS, help="that it speaks; all by default")
    args = parser.parse_args()
    models, protocols = tuple(args.model), tuple(args.protocol or FORMATS)
    script = from_file(args.script)
    server = ModelServer(script, key=args.key, models=models, latency_s=args.latency, keep=False, protocols=protocols)
    try:
        asyncio.run(_serve(server, args.host, args.port))
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
