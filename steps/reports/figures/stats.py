"""Statistics of the report: textbook formulas with their sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, sqrt

Z_95 = 1.959963984540054
RESAMPLES = 1000
SEED = 20251


def wilson(successes: int, total: int, z: float = Z_95) -> tuple[float, float]:
    """Return the score interval of a rate (Wilson 1927), sound even for n = 5, unlike the normal approximation.

    Without measurements, (0, 1).
    """
    if total == 0:
        return 0.0, 1.0
    rate = successes / total
    centre = (rate + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * sqrt(rate * (1 - rate) / total + z * z / (4 * total * total))
    # At 0 and at n one bound is exact; rounding would leave it at -1e-17 or 0.9999999999999999.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    return low, 1.0 if successes == total else min(1.0, centre + half)


def upper_bound(successes: int, total: int, chance: float = 0.05) -> float:
    """Return the rate above which so few successes have at most this chance (Clopper and Pearson 1934, one-sided)."""
    if successes >= total:
        return 1.0
    low, high = 0.0, 1.0
    while high - low > 1e-9:
        rate = (low + high) / 2
        few = sum(comb(total, n) * rate**n * (1 - rate) ** (total - n) for n in range(successes + 1))
        low, high = (rate, high) if few > chance else (low, rate)
    return high


def pass_at_k(attempts: int, resolved: int, k: int) -> float:
    """Return the unbiased estimate that at least one of k attempts resolves (Chen et al. 2021, arXiv 2107.03374).

    1 - C(n-c, k) / C(n, k), for n >= k.
    """
    if attempts < k:
        raise ValueError(f"pass@{k} needs {k} attempts, there are {attempts}")
    return 1.0 - comb(attempts - resolved, k) / comb(attempts, k)


@dataclass(frozen=True)
class PassRate:
    """pass@k over instances."""

    k: int
    instances: int
    """Instances with at least k attempts that have a verdict; the others say nothing about pass@k."""
    estimate: float
    low: float
    high: float


def pass_rates(counts: Sequence[tuple[int, int]], ks: Sequence[int], seed: int = SEED) -> list[PassRate]:
    """Return pass@k for each k that some instance allows; ``counts``: (attempts with a verdict, resolved) per instance.

    The 95 % interval is a percentile bootstrap over instances, because attempts at one instance are not independent.
    If all are at 0 or all at 1, there is nothing to resample: then it is Wilson's interval for that many instances.
    """
    kinds = Counter(counts)  # few distinct pairs stand for thousands of instances
    rates = []
    for k in ks:
        usable = {pair: times for pair, times in kinds.items() if pair[0] >= k}
        instances = sum(usable.values())
        if not instances:
            continue
        values = {pair: pass_at_k(*pair, k) for pair in usable}
        estimate = sum(values[pair] * times for pair, times in usable.items()) / instances
        if estimate in (0.0, 1.0):
            low, high = wilson(int(estimate) * instances, instances)
        else:
            means = _resampled_means([values[pair] for pair in usable], list(usable.values()), seed)
            low, high = quantile(means, 0.025), quantile(means, 0.975)
        rates.append(PassRate(k, instances, estimate, low, high))
    return rates


def _resampled_means(values: list[float], weights: list[int], seed: int) -> list[float]:
    """Return resampled means: one multinomial draw of frequencies per resample, not one draw per instance."""
    import numpy as np  # takes 0.1 s, so only resampling imports it

    if len(values) == 1:
        return [values[0]]
    size = sum(weights)
    draws = np.random.RandomState(seed).multinomial(size, np.divide(weights, size), RESAMPLES)  # frozen: NEP 19
    means: list[float] = (draws @ np.array(values) / size).tolist()
    return means


def mcnemar(gains: int, losses: int) -> tuple[float, float]:
    """Return (exact p, mid-p) of McNemar's test (1947), two-sided, from the pairs that moved; (1, 1) if none did.

    Exact: a binomial test with chance 1/2, conditional on how many moved, statsmodels' default; conservative. mid-p
    counts half of the probability of the observed outcome (Fagerland, Lydersen and Laake 2013, BMC Medical Research
    Methodology 13:91). Integers until the last division: no rounding, however many moved.
    """
    discordant, fewer = gains + losses, min(gains, losses)
    if not discordant:
        return 1.0, 1.0
    whole, term, tail = 1 << discordant, 1, 1
    for n in range(fewer):  # C(moved, n + 1) from C(moved, n)
        term = term * (discordant - n) // (n + 1)
        tail += term
    if gains == losses:
        return 1.0, (2 * whole - term) / (2 * whole)
    return 2 * tail / whole, (2 * tail - term) / whole


LEAST_MOVED = 6
"""With fewer pairs that moved, mcnemar's exact p cannot fall below 0.05: 2 / 2**5 is 0.0625."""


def mean_interval(values: Sequence[float], seed: int = SEED) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of a mean."""
    kinds = Counter(values)
    means = _resampled_means(list(kinds), list(kinds.values()), seed)
    return quantile(means, 0.025), quantile(means, 0.975)


def attempts_shown(most: int) -> list[int]:
    """Return the values of k to show: powers of two and the maximum."""
    return sorted({1, *(2**n for n in range(7) if 2**n <= most), most})


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile by linear interpolation (type 7 of Hyndman and Fan 1996, numpy's default)."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
