"""Reward functions of the kinds that people write, each with the score that it must give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.sandbox import Score

BOXED = r"""
import re

def reward(prompt, completion, answer, **fields):
    found = re.findall(r"\\boxed\{([^{}]*)\}", completion)
    return 1.0 if found and found[-1].strip() == str(answer).strip() else 0.0
"""
TOLERANCE = r"""
import math, re

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")

def reward(prompt, completion, answer, tolerance=1e-3, **fields):
    numbers = NUMBER.findall(completion)
    if not numbers:
        return 0.0
    try:
        value = float(numbers[-1].replace(",", ""))
    except ValueError:
        return 0.0
    return float(math.isclose(value, float(answer), rel_tol=tolerance))
"""
SCHEMA = """
import json

SCHEMA = {"name": str, "age": int, "tags": list}

def reward(completion):
    try:
        found = json.loads(completion)
    except json.JSONDecodeError:
        return 0.0
    if not isinstance(found, dict):
        return 0.1
    return 0.25 + sum(0.25 for key, kind in SCHEMA.items() if isinstance(found.get(key), kind))
"""
THINK = r"""
import re

WHOLE = re.compile(r"^<think>(.*?)</think>\s*<answer>(.*?)</answer>$", re.DOTALL)

def reward(prompt, completion, answer):
    match = WHOLE.match(completion.strip())
    if match is None:
        return 0.0
    thought, said = match.groups()
    score = 0.5 + 0.25 * (completion.count("<think>") == 1) + 0.125 * (len(thought.split()) >= 3)
    return score + 0.125 * (said.strip().lower() == answer.lower())
"""
EDITS = """
def distance(a, b):
    before = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        row = [i]
        for j, right in enumerate(b, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (left != right)))
        before = row
    return before[-1]

def reward(completion, answer, **fields):
    return 1.0 - distance(completion, answer) / max(len(completion), len(answer), 1)
"""
BLOCK = r"""
import re

def reward(completion, **fields):
    blocks = re.findall(r"```(\w*)\n(.*?)```", completion, flags=re.S)
    if not blocks:
        return 0.0
    language, body = blocks[-1]
    lines = [x for x in body.splitlines() if x.strip() and not x.lstrip().startswith("#")]
    return (0.5 if language == "python" and "def " in body else 0.0) + min(len(lines), 4) / 8
"""
FRACTIONS = """
from fractions import Fraction

def reward(completion, answer):
    try:
        return float(Fraction(completion.split()[-1].rstrip(".")) == Fraction(answer))
    except (ValueError, ZeroDivisionError, IndexError):
        return 0.0
"""
KEYWORDS = """
from collections import Counter, defaultdict

def reward(completion, keywords, **fields):
    words = Counter(completion.lower().split())
    hits = defaultdict(int)
    for keyword in keywords:
        hits[keyword] += words.get(keyword, 0)
    (first, _), *_ = sorted(words.items(), key=lambda pair: (-pair[1], pair[0]))
    assert f"{first:>6}|{len(hits) / 3:.1%}" == "  beta|133.3%"
    return sum(1 for count in hits.values() if count) / len(keywords)
"""
RUBRIC = """
from dataclasses import dataclass, field
from enum import Enum

class Part(Enum):
    LENGTH = "length"
    QUESTION = "question"

@dataclass(frozen=True)
class Rubric:
    weights: dict = field(default_factory=lambda: {Part.LENGTH: 0.5, Part.QUESTION: 0.5})

    def score(self, text):
        parts = {Part.LENGTH: min(len(text) / 50, 1.0), Part.QUESTION: float("?" in text)}
        return sum(self.weights[part] * value for part, value in parts.items())

RUBRIC = Rubric()

def reward(completion):
    return RUBRIC.score(completion)
"""
GENERATORS = """
import itertools, math, string

def words(text):
    for word in text.split():
        word = word.strip(string.punctuation)
        if word:
            yield word

def reward(completion):
    found = list(words(completion))
    entropy = -sum(p * math.log2(p) for p in (0.5, 0.5))
    pairs = len(list(itertools.combinations(range(4), 2)))
    return len(set(found)) / len(found) * entropy * pairs / 6
"""
SYNTAX = """
import ast

def reward(completion):
    try:
        tree = ast.parse(completion)
    except SyntaxError:
        return 0.0
    return 1.0 if any(isinstance(node, ast.FunctionDef) for node in ast.walk(tree)) else 0.5
"""
SIMILAR = """
import difflib, statistics, unicodedata

def reward(completion, answer):
    plain = [unicodedata.normalize("NFKD", text).casefold() for text in (completion, answer)]
    return statistics.mean([difflib.SequenceMatcher(None, *plain).ratio(), 1.0])
"""
MONEY = """
from decimal import ROUND_HALF_EVEN, Decimal
from datetime import date, timedelta

def reward(completion, **fields):
    day, amount = completion.split()
    rounded = Decimal(amount).quantize(Decimal("0.01"), ROUND_HALF_EVEN)
    return (date.fromisoformat(day) + timedelta(days=1) == date(2024, 2, 29)) * float(rounded)
"""
TABLE = """
import csv, io, textwrap, heapq, bisect, operator
from functools import lru_cache, reduce

@lru_cache(maxsize=None)
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

def reward(completion):
    rows = list(csv.DictReader(io.StringIO(textwrap.dedent(completion))))
    best = heapq.nlargest(2, (int(row["score"]) for row in rows))
    at = bisect.bisect(sorted(best), 7)
    return reduce(operator.add, best) / fibonacci(10) + at
"""
XML = """
import html, hashlib, base64
import xml.etree.ElementTree as tree

def reward(completion):
    root = tree.fromstring(completion)
    text = html.unescape(root.findtext("said"))
    digest = hashlib.sha256(base64.b64decode(root.get("seed"))).hexdigest()
    return float(text == "a & b") + float(digest.startswith("2c26b46b"))
"""
MATCHING = """
def reward(completion):
    match completion.split():
        case ["move", direction, steps] if (n := int(steps)) > 2:
            return n / 4
        case [first, *rest]:
            return len(rest)
        case _:
            return -1
"""
FUNCTIONS: list[tuple[str, str, dict[str, Any], float]] = [
    (BOXED, "so it is \\boxed{3}, no: \\boxed{ 4 }", {"answer": 4}, 1.0),
    (TOLERANCE, "We get 1,234.5 and then 3.14159", {"answer": "3.1415"}, 1.0),
    (SCHEMA, '{"name": "Ada", "age": 36, "tags": []}', {}, 1.0),
    (THINK, "<think>\nlet me think\n</think>\n<answer>Rome</answer>", {"answer": "rome"}, 1.0),
    (EDITS, "kitten", {"answer": "sitting"}, 1 - 3 / 7),
    (BLOCK, "So:\n```python\n# c\ndef f(x):\n    return x\n\nf(2)\n```\n", {}, 0.875),
    (FRACTIONS, "The answer is 6/8.", {"answer": "3/4"}, 1.0),
    (KEYWORDS, "alpha beta beta gamma", {"keywords": ["alpha", "beta", "delta", "gamma"]}, 0.75),
    (RUBRIC, "is this a question? " * 5, {}, 1.0),
    (GENERATORS, "one, two. one!", {}, 2 / 3),
    (SYNTAX, "def f(x):\n  return x", {}, 1.0),
    (SIMILAR, "ÉTUDE", {"answer": "étude"}, 1.0),
    (MONEY, "2024-02-28 2.675", {}, 2.68),
    (TABLE, "  name,score\n  a,7\n  b,48\n  c,1\n", {}, 2.0),
    (XML, '<r seed="Zm9v"><said>a &amp;amp; b</said></r>', {}, 2.0),
    (MATCHING, "move north 3", {}, 0.75),
]


@pytest.mark.parametrize(("source", "completion", "row", "wanted"), FUNCTIONS, ids=range(16))
def test_a_reward_function_gives_what_it_gives_elsewhere(
    score: Callable[..., Score], source: str, completion: str, row: dict[str, Any], wanted: float
) -> None:
    assert score(source, completion, **row) == Score(pytest.approx(wanted))
