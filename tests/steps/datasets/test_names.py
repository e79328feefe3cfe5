from __future__ import annotations

import pytest

from swe_argo.steps.datasets import names


@pytest.mark.parametrize(
    ("spelling", "means"),
    [
        ("full", "SWE-bench/SWE-bench"),
        ("swe-bench", "SWE-bench/SWE-bench"),
        ("swebench", "SWE-bench/SWE-bench"),
        ("swe_bench", "SWE-bench/SWE-bench"),
        ("princeton-nlp/SWE-bench", "SWE-bench/SWE-bench"),
        ("verified", "SWE-bench/SWE-bench_Verified"),
        ("Verified", "SWE-bench/SWE-bench_Verified"),
        ("princeton-nlp/SWE-bench_Verified", "SWE-bench/SWE-bench_Verified"),
        ("SWE-bench/SWE-Bench_Verified", "SWE-bench/SWE-bench_Verified"),
        ("lite", "SWE-bench/SWE-bench_Lite"),
        ("swe-bench-lite", "SWE-bench/SWE-bench_Lite"),
        ("swebench-lite", "SWE-bench/SWE-bench_Lite"),
        ("swe_bench_lite", "SWE-bench/SWE-bench_Lite"),
        ("swe-bench_lite", "SWE-bench/SWE-bench_Lite"),
        ("princeton-nlp/SWE-bench_Lite", "SWE-bench/SWE-bench_Lite"),
        ("multilingual", "SWE-bench/SWE-bench_Multilingual"),
        ("swe-bench/SWE-Bench_Multilingual", "SWE-bench/SWE-bench_Multilingual"),
        ("multimodal", "SWE-bench/SWE-bench_Multimodal"),
        ("princeton-nlp/SWE-bench_Multimodal", "SWE-bench/SWE-bench_Multimodal"),
        ("smith", "SWE-bench/SWE-smith"),
        ("r2e-gym/swe-bench-verified", "R2E-Gym/SWE-Bench-Verified"),
        ("mariushobbhahn/SWE-bench-verified-mini", "MariusHobbhahn/swe-bench-verified-mini"),
        ("Somebody/Else.s_Data", "Somebody/Else.s_Data"),
    ],
)
def test_hub_id_accepts_every_spelling(spelling: str, means: str) -> None:
    assert names.hub_id(spelling) == means


@pytest.mark.parametrize("text", ["", "nonsense", "a/b/c", "/a", "a/", "../b", "a/../b", "a b/c", "~/x"])
def test_invalid_hub_id_is_none(text: str) -> None:
    assert names.hub_id(text) is None


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("verfied", " (did you mean verified?)"),
        ("mimi", " (did you mean mini?)"),
        ("SWE-bench/SWE-bench_Verifed", " (did you mean SWE-bench/SWE-bench_Verified"),
        ("zzz", ""),
    ],
)
def test_did_you_mean_suggests_near_miss(text: str, hint: str) -> None:
    assert names.did_you_mean(text).startswith(hint)
    assert bool(names.did_you_mean(text)) == bool(hint)


@pytest.mark.parametrize(
    ("name", "columns", "dataset"),
    [
        ("princeton-nlp/SWE-bench_Verified", set(), "SWE-bench/SWE-bench_Verified"),
        ("R2E-Gym/SWE-Bench-Lite", set(), "SWE-bench/SWE-bench_Lite"),
        ("MariusHobbhahn/swe-bench-verified-mini", set(), "SWE-bench/SWE-bench_Verified"),
        ("old/multilingual.jsonl", set(), "SWE-bench/SWE-bench_Multilingual"),
        ("rows.jsonl", {"difficulty"}, "SWE-bench/SWE-bench_Verified"),
        ("rows.jsonl", {"image_assets"}, "SWE-bench/SWE-bench_Multimodal"),
        ("rows.jsonl", set(), "SWE-bench/SWE-bench"),
    ],
)
def test_guess_answers_names_dataset(name: str, columns: set[str], dataset: str) -> None:
    assert names.guess_answers(name, columns) == dataset
