"""Options of several commands."""

from __future__ import annotations

from typing import Annotated

import typer

from swe_argo.steps.contracts.run_spec import RunSpec

StoreFlag = Annotated[
    str,
    typer.Option(
        "--store",
        "-o",
        help="Folder or s3://bucket/prefix that holds all runs.",
        envvar=["SWE_ARGO_STORE", "EVAL_OUTPUT_PATH"],
    ),
]
DEFAULT_STORE = RunSpec().store
