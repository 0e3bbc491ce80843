"""Likeness of texts, against numbers worked out by hand."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine.errors import GraderError, SpecError
from engine.rewards import parse_graders
from engine.rewards.similarity import METRICS

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("MARLAAS_TEST_DATA", ROOT / "../shared/data"))


def score(metric: str, completion: str, answer: Any, **options: Any) -> float:
    item = {"type": "text_similarity", "evaluation_metric": metric, **options}
    (grader,) = parse_graders([item])
    return grader.score(completion, {"answer": answer})  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(
    ("metric", "completion", "answer", "expected"),
    [
        ("fuzzy_match", "abcd", "abcd", 1),
        ("fuzzy_match", "abcd", "abxd", 6 / 8),  # a, b and d of four and four letters
        ("fuzzy_match", "abcd", "wxyz", 0),
        ("fuzzy_match", "", "", 1),
        ("fuzzy_match", "", "a", 0),
        ("exact_match", "The Chief of Protocol.", "chief of protocol", 1),
        ("exact_match", "an apple, a day", "apple day", 1),
        ("exact_match", "chief protocol", "chief of protocol", 0),
        ("token_f1", "the chief of protocol", "Chief of Protocol", 1),
        ("token_f1", "chief officer", "Chief of Protocol", 2 / 5),  # one word of 2 and 3
        ("token_f1", "yes, it is", "yes", 0),
        ("token_f1", "Yes.", "yes", 1),
        ("token_f1", "blue blue red", "blue green", 2 / 5),  # blue counts once
        ("token_f1", "a the", "an", 1),
        ("rouge_1", "The cat sat", "the cat ran off", 4 / 7),
        ("rouge_2", "the cat sat down", "the cat ran down", 2 / 6),
        ("rouge_2", "cat", "cat", 1),  # no pairs on either side
        ("rouge_l", "the cat sat on the mat", "the cat on a mat", 8 / 11),  # the cat on mat
        ("rouge_l", "mat cat", "cat mat", 2 / 4),
        ("rouge_1", "cafe\u0301 ÉTÉ", "caf\u00e9 été", 1),
    ],
)
def test_likeness(metric: str, completion: str, answer: str, expected: float) -> None:
    assert score(metric, completion, answer) == pytest.approx(expected)


@pytest.mark.parametrize("metric", METRICS)
def test_the_most_alike_of_several_counts(metric: str) -> None:
    answers = ["nothing like it", "the quick brown fox", "quick fox"]
    assert score(metric, "the quick brown fox", answers) == 1
    assert score(metric, "zzz", answers) == pytest.approx(max(score(metric, "zzz", answers[0]), 0))


def test_a_threshold_makes_it_0_or_1() -> None:
    at = {"pass_threshold": 2 / 5}
    assert score("token_f1", "chief officer", "Chief of Protocol", **at) == 1
    assert score("token_f1", "chief big officer", "Chief of Protocol", **at) == 0  # 2 / 6


def test_other_metrics_are_refused_by_name() -> None:
    with pytest.raises(SpecError, match=r"Must be one of fuzzy_match, .*, not 'bleu'"):
        score("bleu", "x", "x")


@pytest.mark.parametrize("answer", [None, True, {}, [], [None]])
def test_a_reference_that_is_no_text_leaves_ungraded(answer: Any) -> None:
    with pytest.raises(GraderError, match="column 'answer' holds"):
        score("rouge_1", "x", answer)


@pytest.mark.parametrize("metric", METRICS)
def test_long_texts_are_cut_before_they_are_compared(metric: str) -> None:
    same = "a b " * 2_500
    assert score(metric, same + "x y z" * 10**6, same + "other" * 10**6) == 1


@pytest.mark.skipif(
    not DATA.is_dir(), reason=f"no sample files: set MARLAAS_TEST_DATA (looked at {DATA})"
)
def test_every_answer_of_hotpotqa_is_like_itself_and_unlike_the_next() -> None:
    lines = (DATA / "search_qa.jsonl").read_text(encoding="utf-8").splitlines()
    answers = [json.loads(line)["answers"] for line in lines]
    assert len(answers) > 100
    for metric in ("token_f1", "exact_match", "rouge_l"):
        assert {score(metric, f" {one[0].upper()}!", one) for one in answers} == {1}
    others = [score("token_f1", one[0], other) for one, other in pairwise(answers)]
    assert sum(others) / len(others) < 0.05
