from __future__ import annotations

from itertools import combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.reports.figures.stats import (
    MIN_DISCORDANT,
    mcnemar,
    mean_interval,
    pass_at_k,
    pass_at_ks,
    pass_rates,
    quantile,
    upper_bound,
    wilson,
)


@pytest.mark.parametrize(
    ("resolved", "total", "low", "high"),
    [  # Newcombe 1998, table I: method 3 (score), and statsmodels' proportion_confint(method="wilson")
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (5, 5, 0.5655, 1.0),
    ],
)
def test_wilson_matches_published_values(resolved: int, total: int, low: float, high: float) -> None:
    assert wilson(resolved, total) == pytest.approx((low, high), abs=5e-5)
    assert (wilson(0, 0), wilson(0, 7)[0], wilson(7, 7)[1]) == ((0.0, 1.0), 0.0, 1.0)


@pytest.mark.parametrize(
    ("successes", "total", "bound"),
    [(0, 59, 0.0495), (0, 58, 0.0503), (0, 3, 0.6316), (1, 93, 0.04999), (3, 10, 0.6066), (10, 10, 1.0)],
)
def test_upper_bound_is_exact(successes: int, total: int, bound: float) -> None:
    assert upper_bound(successes, total) == pytest.approx(bound, abs=5e-5)


def test_pass_at_k_equals_enumeration() -> None:
    for n in range(1, 8):
        for resolved in range(n + 1):
            for k in range(1, n + 1):
                samples = list(combinations([True] * resolved + [False] * (n - resolved), k))
                assert pass_at_k(n, resolved, k) == pytest.approx(sum(map(any, samples)) / len(samples))
    with pytest.raises(ValueError, match="pass@3 needs 3 attempts, not 2"):
        pass_at_k(2, 1, 3)


def test_pass_rates_skip_short_instances() -> None:
    first, two = pass_rates([(2, 1), (2, 0), (1, 1)], [1, 2])
    assert (first.instances, two.instances) == (3, 2)
    assert first.estimate == pytest.approx((0.5 + 0 + 1) / 3)
    assert two.estimate == pytest.approx(0.5)
    assert pass_rates([(1, 1)], [2]) == []
    assert pass_rates([], [1]) == []


def test_pass_rates_bootstrap_is_seeded() -> None:
    counts = [(4, n % 5) for n in range(100)]
    first, again = pass_rates(counts, [1, 4]), pass_rates(counts, [1, 4])
    assert first == again
    assert all(rate.low < rate.estimate < rate.high for rate in first)
    # the standard error of a mean of 100 values with standard deviation 0.3536 is 0.035
    assert first[0].high - first[0].low == pytest.approx(2 * 1.96 * 0.0354, rel=0.15)
    whole = pass_rates([(10, 10)] * 10 + [(10, 0)] * 10, [1])[0]
    assert whole.high - whole.low > 0.35  # as 20 instances give, not as 200 attempts


def test_quantiles_interpolate() -> None:
    assert quantile([4, 1, 3, 2], 0.5) == 2.5
    assert quantile([1, 2, 3, 4, 5], 0.95) == pytest.approx(4.8)
    assert quantile([7], 0.95) == 7


def test_attempts_shown_are_powers_of_2() -> None:
    assert pass_at_ks(1) == [1]
    assert pass_at_ks(6) == [1, 2, 4, 6]
    assert pass_at_ks(100) == [1, 2, 4, 8, 16, 32, 64, 100]


@pytest.mark.parametrize(
    ("gained", "lost", "exact", "mid"),
    [  # Fagerland, Lydersen and Laake 2013, table 3: (1, 7) of Bentur et al., (6, 16) of Cavo et al.
        (1, 7, 0.0703, 0.0391),
        (6, 16, 0.0525, 0.0347),
        (0, 5, 0.0625, 0.03125),
        (5, 5, 1.0, 1 - 0.5 * 252 / 1024),
        (0, 0, 1.0, 1.0),
    ],
)
def test_mcnemar_matches_literature(gained: int, lost: int, exact: float, mid: float) -> None:
    assert mcnemar(gained, lost) == pytest.approx((exact, mid), abs=5e-5)
    assert mcnemar(lost, gained) == mcnemar(gained, lost)
    assert mcnemar(0, MIN_DISCORDANT - 1)[0] > 0.05 >= mcnemar(0, MIN_DISCORDANT)[0]


@given(st.integers(0, 14), st.integers(0, 14))
def test_mcnemar_equals_enumeration(gained: int, lost: int) -> None:
    moved, uneven = gained + lost, abs(gained - lost)
    extreme = sum(comb(moved, heads) for heads in range(moved + 1) if abs(2 * heads - moved) >= uneven)
    assert mcnemar(gained, lost)[0] == pytest.approx(extreme / 2**moved)


@given(st.integers(0, 800), st.integers(0, 800))
def test_mcnemar_falls_as_sides_part(gained: int, lost: int) -> None:
    exact, mid = mcnemar(gained, lost)
    assert 0 <= mid <= exact <= 1
    if gained >= lost:
        assert mcnemar(gained + 1, lost)[0] <= exact


def test_mean_interval_contains_mean() -> None:
    low, high = mean_interval([0.0] * 50 + [1.0] * 50)
    assert low < 0.5 < high
    assert high - low == pytest.approx(2 * 1.96 * 0.05, rel=0.15)
    assert mean_interval([0.25] * 9) == (0.25, 0.25)
