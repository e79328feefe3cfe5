"""Store -> report/: official summaries, predictions, figures, leaderboard bundle and page. Nothing is graded here."""

from __future__ import annotations

import argparse

from steps.entry import run_program
from steps.reports.write import report
from steps.store import open_store


def main() -> None:
    """``python -m steps.report --store URL --run ID``."""
    parser = argparse.ArgumentParser(prog="python -m steps.report", description=__doc__)
    parser.add_argument("--store", required=True, help="folder or s3://bucket/prefix")
    parser.add_argument("--run", required=True, help="run id")
    wish = parser.parse_args()

    def work() -> None:
        report(open_store(wish.store), wish.run)

    run_program("report", work)


if __name__ == "__main__":
    main()
