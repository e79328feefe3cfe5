from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.training.samples import SampledCall, Stretch, stretches_of


def call(prompt: list[int], output: list[int], step: int = 0) -> SampledCall:
    return SampledCall(prompt, output, [-token / 8 for token in output], step, weights=f"w{step}")


def outputs(stretch: Stretch) -> list[list[int]]:
    return [stretch.tokens[span.start : span.end] for span in stretch.calls]


def test_a_conversation_that_only_grows_is_one_sample() -> None:
    (one,) = stretches_of([call([1, 2], [3, 4], 1), call([1, 2, 3, 4, 5], [6], 2)])
    assert one.tokens == [1, 2, 3, 4, 5, 6]
    assert one.sampled == [False, False, True, True, False, True]
    assert one.logprobs == [0, 0, -3 / 8, -4 / 8, 0, -6 / 8]
    assert [(span.start, span.end, span.step, span.weights) for span in one.calls] == [(2, 4, 1, "w1"), (5, 6, 2, "w2")]


def test_a_prompt_that_is_shorter_or_the_same_is_told_from_one_that_extends() -> None:
    same, shorter = stretches_of([call([1], [2, 3]), call([1, 2, 3], []), call([1, 2, 3], [4]), call([1, 2], [4])])
    assert (same.tokens, shorter.tokens) == ([1, 2, 3, 4], [1, 2, 4])


def test_a_prompt_that_was_rendered_otherwise_begins_a_sample_and_trains_on_nothing_twice() -> None:
    first, second = stretches_of([call([1], [2, 9, 3]), call([1, 2, 3, 4], [5])])
    assert (first.tokens, first.sampled) == ([1, 2, 9, 3], [False, True, True, True])
    assert (second.tokens, second.sampled) == ([1, 2, 3, 4, 5], [False] * 4 + [True])


def test_conversations_that_take_turns_are_told_apart() -> None:
    calls = [call([1], [2]), call([7], [8]), call([1, 2, 3], [4]), call([7, 8, 9], [10]), call([1, 2, 3, 4], [5])]
    assert [stretch.tokens for stretch in stretches_of(calls)] == [[1, 2, 3, 4, 5], [7, 8, 9, 10]]


def test_two_answers_to_the_same_prompt_are_two_samples() -> None:
    assert [stretch.tokens for stretch in stretches_of([call([1], [2]), call([1], [3])])] == [[1, 2], [1, 3]]


@given(
    st.lists(st.tuples(st.lists(st.integers(1, 2), max_size=4), st.lists(st.integers(1, 2), max_size=2)), max_size=8)
)
def test_every_call_is_in_one_stretch_whole(pairs: list[tuple[list[int], list[int]]]) -> None:
    calls = [call(prompt, output, step) for step, (prompt, output) in enumerate(pairs)]
    stretches = stretches_of(calls)
    spans = {span.step: (stretch, span) for stretch in stretches for span in stretch.calls}
    assert sorted(spans) == list(range(len(calls)))
    for each in calls:
        stretch, span = spans[each.step]
        assert (stretch.tokens[: span.start], stretch.tokens[span.start : span.end]) == (each.prompt, each.output)
        assert stretch.logprobs[span.start : span.end] == each.logprobs
    for stretch in stretches:
        assert sum(stretch.sampled) == sum(map(len, outputs(stretch)))
        assert len(stretch.tokens) == len(stretch.sampled) == len(stretch.logprobs)
