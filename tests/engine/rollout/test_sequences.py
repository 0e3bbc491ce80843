"""Sequences: when they end, what a preemption leaves, which requests are let in."""

from __future__ import annotations

import math
from collections.abc import Sequence as Row
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import RolloutError
from engine.rollout.sequences import Decode, Sequence, check_request
from engine.types import AdapterRef, GenerationRequest, SamplingParams

PROMPT = (5, 6, 7)


def decode_bytes(ids: Row[int]) -> str:
    """A token a byte: as byte-level vocabularies do, bytes that fit nowhere become U+FFFD."""
    return bytes(ids).decode("utf-8", errors="replace")


def decode_runs(ids: Row[int]) -> str:
    """As decoders with byte fallback do: one byte that fits nowhere voids all of them."""
    try:
        return bytes(ids).decode("utf-8")
    except UnicodeDecodeError:
        return "\ufffd" * len(ids)


def request(**sampling: Any) -> GenerationRequest:
    params = replace(SamplingParams(max_new_tokens=1_000), **sampling)
    return GenerationRequest("a", AdapterRef("t", 0, "d", "/nowhere"), PROMPT, params, seed=1)


def feed(sequence: Sequence, ids: Row[int]) -> tuple[str, int]:
    """The finish reason and how many tokens it took."""
    for count, token in enumerate(ids, 1):
        if reason := sequence.append(token, -0.5):
            return reason, count
    return "", len(ids)


def test_a_stop_id_ends_it_and_so_does_the_length() -> None:
    assert feed(Sequence(request(stop_ids=(9,)), "d"), [1, 2, 9, 3]) == ("stop", 3)
    assert feed(Sequence(request(max_new_tokens=2), "d"), [1, 2, 9]) == ("length", 2)
    last = Sequence(request(stop_ids=(9,), max_new_tokens=2), "d")
    assert feed(last, [1, 9]) == ("stop", 2)


@pytest.mark.parametrize("logprob", [math.nan, -math.inf])
def test_a_logprob_that_is_not_finite_ends_it_with_an_error(logprob: float) -> None:
    sequence = Sequence(request(), "d")
    assert sequence.append(3, logprob) == "error"
    assert sequence.ids == []
    assert "not finite" in sequence.generation("error").error


def test_a_prompt_logprob_that_is_not_finite_is_an_error_too() -> None:
    sequence = Sequence(request(), "d", prompt_logprobs=[-1.0, math.nan])
    sequence.append(3, -1.0)
    assert "not finite" in sequence.generation("length").error


@pytest.mark.parametrize("decode", [decode_bytes, decode_runs])
def test_a_stop_string_split_over_tokens_ends_it_and_its_tokens_stay(decode: Decode) -> None:
    text = "some text, then END and more"
    sequence = Sequence(request(stop=("never", "END")), "d", decode)
    assert feed(sequence, text.encode()) == ("stop", text.index("END") + 3)
    assert bytes(sequence.ids) == b"some text, then END"
    assert sequence.generation("stop").ids == tuple(b"some text, then END")


def test_a_stop_string_within_a_token_ends_it() -> None:
    pieces = ["one ", "two END thr", "ee"]
    sequence = Sequence(request(stop=("END",)), "d", lambda ids: "".join(pieces[i] for i in ids))
    assert feed(sequence, [0, 1, 2]) == ("stop", 2)


def test_the_prompt_does_not_count_for_stop_strings() -> None:
    asked = replace(request(stop=("END",)), ids=tuple(b"E"))
    assert feed(Sequence(asked, "d", decode_bytes), b"ND END") == ("stop", 6)


@pytest.mark.parametrize("decode", [decode_bytes, decode_runs])
@pytest.mark.parametrize("before", ["", "a", "é" * 30, "你好" * 30, "a😀" * 20, "😀" * 20 + "a"])
def test_a_stop_string_of_long_characters_is_found_at_its_last_byte(
    decode: Decode, before: str
) -> None:
    sequence = Sequence(request(stop=("停😀",)), "d", decode)
    assert feed(sequence, (before + "停😀" + "好").encode()) == (
        "stop",
        len((before + "停😀").encode()),
    )


@given(st.text("ab é好😀", max_size=60), st.text("ab é好😀", min_size=1, max_size=4))
def test_stop_strings_end_it_where_the_text_first_has_them(text: str, stop: str) -> None:
    data = text.encode()
    wanted = next((n for n in range(len(data) + 1) if stop.encode() in data[:n]), None)
    found = feed(Sequence(request(stop=(stop,)), "d", decode_bytes), data)
    assert found == (("stop", wanted) if wanted is not None else ("", len(data)))


def test_bytes_that_fit_nowhere_do_not_hide_a_stop_string() -> None:
    data = b"\xe5\xbd" * 40 + b"END"
    assert feed(Sequence(request(stop=("END",)), "d", decode_bytes), data) == ("stop", len(data))


def test_only_the_tail_is_decoded_again() -> None:
    lengths = []

    def decode(ids: Row[int]) -> str:
        lengths.append(len(ids))
        return decode_bytes(ids)

    feed(Sequence(request(stop=("END",)), "d", decode), b"x" * 500)
    assert max(lengths) <= 16 and len(lengths) == 500


def test_a_preempted_sequence_computes_all_its_tokens_again_and_keeps_them() -> None:
    sequence = Sequence(request(), "d", prompt_logprobs=[-1.0, -2.0])
    sequence.num_cached = 3
    feed(sequence, [8, 9])
    sequence.num_cached = 4
    assert (sequence.num_uncached, sequence.uncached_ids(100)) == (1, [9])
    sequence.preempt()
    assert (sequence.num_tokens, sequence.num_uncached) == (5, 5)
    assert sequence.all_ids == [5, 6, 7, 8, 9] == sequence.uncached_ids(100)
    assert sequence.uncached_ids(2) == [5, 6] and sequence.uncached_ids(4) == [5, 6, 7, 8]
    assert sequence.prompt_logprobs == [-1.0, -2.0]


def test_prompt_logprobs_that_were_not_complete_are_computed_again() -> None:
    sequence = Sequence(request(), "d", num_cached=2, prompt_logprobs=[-1.0])
    assert sequence.uncached_ids(5) == [7]
    sequence.preempt()
    assert sequence.prompt_logprobs == []


def test_what_became_of_it_has_the_prompt_logprobs() -> None:
    sequence = Sequence(request(), "digest", started_at=12.0, prompt_logprobs=[-1.0, -2.0])
    sequence.append(3, -0.25)
    done = sequence.generation("cancelled")
    assert (done.ids, done.logprobs, done.prompt_logprobs) == ((3,), (-0.25,), (-1.0, -2.0))
    assert (done.finish_reason, done.digest, done.started_at) == ("cancelled", "digest", 12.0)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"temperature": 0.0}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_p": math.nan}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"min_p": -0.1}, "min_p"),
        ({"min_p": 1.1}, "min_p"),
        ({"stop": ("",)}, "must have text"),
        ({"stop": ("\ufffd",)}, "replacement character"),
        ({"stop": ("x" * 129,)}, "longer than 128 bytes"),
        ({"stop": tuple("abcdefghijklmnopq")}, "More than 16"),
        ({"max_new_tokens": 30}, "more than the 32"),
    ],
)
def test_a_request_out_of_range_is_refused_with_the_reason(
    change: dict[str, Any], problem: str
) -> None:
    sound = request(max_new_tokens=29)
    bad = replace(sound, sampling=replace(sound.sampling, **change))
    with pytest.raises(RolloutError, match=problem):
        check_request(bad, vocab_size=10, max_length=32, can_decode=True)


def test_a_request_at_the_ends_of_its_ranges_is_let_in() -> None:
    strings = (*"abcdefghijklmno", "é" * 64)
    ranges: list[dict[str, Any]] = [
        {"top_p": 1.0, "min_p": 1.0},
        {"top_p": 1e-9, "top_k": 1},
        {"stop": strings},
    ]
    for sampling in ranges:
        check_request(request(**sampling), 8, 1_003, can_decode=True)


def test_stop_strings_without_a_tokenizer_are_refused() -> None:
    with pytest.raises(RolloutError, match="need the tokenizer"):
        check_request(request(stop=("END",)), 10, 2_000)


@pytest.mark.parametrize(("ids", "problem"), [((), "empty"), ((-1,), "outside"), ((8,), "outside")])
def test_a_prompt_that_cannot_be_read_is_refused(ids: tuple[int, ...], problem: str) -> None:
    with pytest.raises(RolloutError, match=problem):
        check_request(replace(request(), ids=ids), 8, 2_000)
