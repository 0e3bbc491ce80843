"""Each reward function scores what it says, and says when it cannot."""

import threading
import time

import pytest

from engine.errors import GraderError, SpecError
from engine.rewards import parse_graders


def score(item: dict[str, object], completion: str, **row: object) -> float:
    (grader,) = parse_graders([item])
    return grader.score(completion, row)


@pytest.mark.parametrize(
    ("item", "completion", "expected"),
    [
        ({"pattern": r"^\d+$"}, "12", 1),
        ({"pattern": r"^\d+$"}, "12a", 0),
        ({"pattern": "YES", "ignore_case": True}, "oh yes", 1),
        ({"pattern": r"answer: (\w+)", "target": "answer"}, "answer: 1, answer: blue ", 1),
        ({"pattern": r"answer: (\w+)", "target": "answer"}, "answer: blue, answer: 1", 0),
        ({"pattern": r"blue\s*$", "target": "answer"}, "so: blue\n", 1),
        ({"pattern": r"(x)?blue", "target": "answer"}, "blue", 0),
        ({"pattern": r"\p{Lu}\N{DIGIT ONE}"}, "É1", 1),
        ({"pattern": r"a{2,3}\{x\}"}, "aaa{x}", 1),
    ],
)
def test_regex(item: dict, completion: str, expected: float) -> None:
    assert score({"type": "regex", **item}, completion, answer="blue") == expected


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"(a+)+$", "a" * 5_000 + "b"),
        (r"(a|aa)+$", "a" * 5_000 + "b"),
        (r"(x+x+)+y$", "xy" + "x" * 20_000),
        (r"(?:(\w)(?=.*\1.*\1.*\1))*$", "abcdefghij" * 2_000),
        (r"(?:(?:(?:a{1,100}){1,100}){1,100}){1,100}b$", "ab" + "a" * 20_000),
    ],
)
def test_a_catastrophic_pattern_ends_in_time_without_stopping_other_threads(
    pattern: str, text: str
) -> None:
    ticks: list[float] = []
    is_done = threading.Event()

    def tick() -> None:
        while not is_done.wait(0.01):
            ticks.append(time.monotonic())

    other = threading.Thread(target=tick, daemon=True)
    other.start()
    with pytest.raises(GraderError, match="unresponsive_reward_error"):  # it would take years
        score({"type": "regex", "pattern": pattern}, text)
    is_done.set()
    other.join()
    assert len(ticks) >= 3


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?:(?=a)){99999999}b",  # 10 GB
        r"((?:a?){1000}){1000}b",
        r"(?:(?:(?:ab){99}){99}){99}",
        r"x{30000}",
        r"(?:.{9}){9999,}",
        r"a{4294967294}",
    ],
)
def test_a_pattern_that_would_fill_memory_is_refused_before_it_is_compiled(pattern: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_graders([{"type": "regex", "pattern": pattern}])
    assert "unroll to about" in caught.value.fields["graders.0.pattern"][0]


@pytest.mark.parametrize(
    "pattern",
    [r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}$", r"^.{100,}\.$", r"(?:[a-z]{2,8} ){3,12}", r"a{0,99999}b"],
)
def test_ordinary_repeats_are_allowed(pattern: str) -> None:
    parse_graders([{"type": "regex", "pattern": pattern}])


THINK = "<think>so</think>\n<answer>4</answer>"


@pytest.mark.parametrize(
    ("completion", "options", "expected"),
    [
        (THINK, {}, 1),
        (f" {THINK}\n", {}, 1),
        (f"Well: {THINK}", {}, 0),
        (f"Well: {THINK} Done.", {"allow_outside": True}, 1),
        ("<answer>4</answer><think>so</think>", {"allow_outside": True}, 0),
        ("<think>so<answer>4</answer></think>", {"allow_outside": True}, 0),
        ("<think>so</think>", {}, 0),
        (THINK + THINK, {"allow_outside": True}, 0),
        ("</think>so<think><answer>4</answer>", {"allow_outside": True}, 0),
        ("so</think><answer>4</answer>", {"is_opened": True}, 1),
        ("so</think><answer>4</answer>", {}, 0),
        ("<a>1</a>", {"tags": "a"}, 1),
        ("", {}, 0),
    ],
)
def test_format(completion: str, options: dict, expected: float) -> None:
    assert score({"type": "format", **options}, completion) == expected


@pytest.mark.parametrize(
    ("size", "options", "expected"),
    [
        (0, {"length": 10, "decay": 4}, 1),
        (10, {"length": 10, "decay": 4}, 1),
        (11, {"length": 10, "decay": 4}, 0.75),
        (14, {"length": 10, "decay": 4}, 0),
        (99, {"length": 10, "decay": 4}, 0),
        (11, {"length": 10, "decay": 0}, 0),
        (9, {"length": 10, "decay": 4, "mode": "around"}, 0.75),
        (10, {"length": 10, "decay": 4, "mode": "around"}, 1),
        (12, {"length": 10, "decay": 4, "mode": "around"}, 0.5),
    ],
)
def test_length(size: int, options: dict, expected: float) -> None:
    assert score({"type": "length", **options}, "x" * size) == expected
    assert score({"type": "length", "unit": "words", **options}, "word  " * size) == expected
