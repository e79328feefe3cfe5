"""Counters of the proxy, in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class ProxyMetrics:
    """Counters since the start."""

    responses: Counter[int] = field(default_factory=Counter)
    """Responses by HTTP status; 499 if the client closed the connection."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    in_flight: int = 0
    sampling_seconds: float = 0.0
    sampled_calls: int = 0

    def text(self, weights: str, swaps: int) -> str:
        """Return the metrics page. ``weights``: the version that answers."""
        lines = ["# TYPE swe_argo_proxy_responses_total counter"]
        lines += [
            f'swe_argo_proxy_responses_total{{status="{code}"}} {n}' for code, n in sorted(self.responses.items())
        ]
        for name, kind, value in (
            ("prompt_tokens_total", "counter", self.prompt_tokens),
            ("completion_tokens_total", "counter", self.completion_tokens),
            ("sampling_seconds_total", "counter", round(self.sampling_seconds, 3)),
            ("sampled_calls_total", "counter", self.sampled_calls),
            ("weight_swaps_total", "counter", swaps),
            ("calls_in_flight", "gauge", self.in_flight),
        ):
            lines += [f"# TYPE swe_argo_proxy_{name} {kind}", f"swe_argo_proxy_{name} {value}"]
        escaped = weights.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        lines += ["# TYPE swe_argo_proxy_weights gauge", f'swe_argo_proxy_weights{{version="{escaped}"}} 1']
        return "\n".join(lines) + "\n"
