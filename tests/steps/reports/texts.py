"""The words a synthetic run is made of: plausible ones, and hostile ones."""

from __future__ import annotations

from collections.abc import Mapping

from swe_argo.steps.contracts.solve_record import History
from swe_argo.steps.contracts.trajectory import StopReason

HOSTILE = (
    "<script>document.title='owned'</script></details></table><img src=x onerror=document.title=1>"
    "\x1b[2J\x1b[31mred\x1b[0m \x00 NUL \x9b31m \u202egnp.exe\u202c {{ 7*7 }} "
    "</style><style>*{display:none}</style>\r\n"
)
REPOS = (
    ("django/django", 46),
    ("sympy/sympy", 15),
    ("sphinx-doc/sphinx", 9),
    ("matplotlib/matplotlib", 7),
    ("scikit-learn/scikit-learn", 6),
    ("astropy/astropy", 5),
    ("pydata/xarray", 4),
    ("pytest-dev/pytest", 4),
    ("pylint-dev/pylint", 2),
    ("psf/requests", 2),
    ("mwaskom/seaborn", 1),
    ("pallets/flask", 1),
)
TITLES = (
    "QuerySet.delete() reports the wrong number of affected rows when the model has no related objects",
    "Lambdify prints undefined names for array expressions",
    "Autodoc inherits the signature of a decorated function",
    "Legend picks up artists that were removed from the axes",
    "KeyError in `merge` when coordinates differ only in dtype",
    "Cookies are lost when a redirect changes the port",
)
ISSUE = """QuerySet.delete() reports a number of rows that depends on the model.

With no related objects the count has no entry for the model itself, with related ones it has an entry of zero:

    >>> Book.objects.none().delete()
    (0, {})
    >>> Author.objects.none().delete()
    (0, {'library.Author': 0})

Both are documented to look the same. Seen on main, with SQLite and with PostgreSQL, in tests that compare the two.
The difference comes from the fast path, which some models take and others do not; users see neither, and code that
reads the dictionary by name breaks on one of them.
"""
THOUGHTS = (
    "I will look at how the rows are counted before I change anything: the two paths of delete() must agree.",
    "The fast path returns early and never touches the counter. The edit makes it leave no entry when nothing went.",
    "Now the tests beside it. I expect the count of the empty case to change and everything else to stay as it was, "
    "because only the branch for zero rows is different.",
    "One test still fails: the collector counts a model that had no rows. I will see where that entry is made.",
    "The same rule belongs into the collector, so that both ways say nothing about models that lost nothing.",
)
REASONED = (
    "Two places count: the query, which knows how many rows the database removed, and the collector, which adds them "
    "up by model. If only one of them leaves zeros out, the result depends on which of them ran last."
)
USUAL: Mapping[str, float] = {
    "resolved": 60,
    "unresolved": 27,
    "empty_patch": 3,
    "patch_does_not_apply": 3,
    "tests_timed_out": 2,
    "log_not_gradeable": 2,
    "failed": 2,
    "not_run": 1,
}
HISTORY = History(
    head="b" * 40, refs_removed=31, objects_before=90_000, objects_after=60_000, unreachable_after=0, verified=True
)
STOPS = {
    StopReason.FINISHED: 84,
    StopReason.MAX_STEPS: 7,
    StopReason.TIMEOUT: 2,
    StopReason.CONTEXT_LIMIT: 3,
    StopReason.ABSOLUTE_STEPS: 1,
    StopReason.MALFORMED: 1,
    StopReason.COST_LIMIT: 1,
    StopReason.REFUSAL: 1,
}
VERSIONS = {
    "swe-argo": "0.1.0",
    "swebench": "5.0.2",
    "python": "3.11.9",
    "code": "90710df0c2a1",
    "platform": "linux-x86_64",
}
