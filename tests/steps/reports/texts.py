"""The words a synthetic run is made of: plausible ones, and hostile ones."""

from __future__ import annotations

from collections.abc import Mapping

from steps.contracts.data import History
from steps.contracts.trajectory import StopReason

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
STOPS = [StopReason.FINISHED, StopReason.MAX_STEPS, StopReason.TIMEOUT]
VERSIONS = {
    "swe-argo": "0.1.0",
    "swebench": "5.0.2",
    "python": "3.11.9",
    "code": "90710df0c2a1",
    "platform": "linux-x86_64",
}
