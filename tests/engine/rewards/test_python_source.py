"""A tenant's own function as a reward function, in real sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from engine.errors import GraderError, SpecError
from engine.rewards import catalogue, dump_graders, parse_graders
from engine.rewards.grading import grade
from engine.rewards.python_source import PythonSource
from engine.rewards.services import Sample, Services
from engine.sandbox import Sandboxes

SOURCE = "def reward(prompt, completion, answer, **columns):\n    return completion == answer\n"
COUNTING = """
seen = 0

def reward(completions, **columns):
    global seen
    seen += len(completions)
    return [float(len(completions)) for _ in completions]
"""
MESSAGES = [{"role": "user", "content": "2 + 2?"}]


def graded(story: Callable[[Services], Awaitable[Any]]) -> Any:
    """What a story with services of alice's comes to."""

    async def told() -> Any:
        sandboxes = Sandboxes(max_children=1)
        try:
            return await story(Services(tenant="alice", sandboxes=sandboxes))
        finally:
            await sandboxes.close()

    return asyncio.run(told())


def sample(completion: str, **row: Any) -> Sample:
    return Sample(completion, {"messages": MESSAGES, **row})


def test_a_list_names_it_python_and_keeps_its_line_breaks() -> None:
    source = SOURCE.replace("\n", "\r\n") + "\t# tab\n"
    [grader] = parse_graders([{"type": "python", "source": source, "given": "messages"}])
    assert grader == PythonSource("python", 1.0, SOURCE + "\t# tab\n", "messages")
    assert parse_graders(dump_graders((grader,))) == (grader,)
    [described] = [item for item in catalogue() if item["type"] == "python"]
    assert described["parameters"][0]["is_multiline"] is True


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("  \n", "Must define a function"),
        ("é" * 40_000, "Must have at most 65,536 bytes, not 80,000."),
        ("x" * 65_537, "Must have at most 65536 characters, not 65,537."),
        ("a\x00b", "Must not contain control characters"),
        ("a\u202eb", "Must not contain control characters"),
    ],
)
def test_a_source_that_cannot_be_one_is_refused(source: str, wanted: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_graders([{"type": "python", "source": source}])
    assert caught.value.fields["graders.0.source"][0].startswith(wanted)


def test_columns_the_prompt_and_the_completion_reach_the_function() -> None:
    source = (
        "def reward(prompt, completion, answer, messages, **columns):\n"
        "    assert prompt == messages[0]['content'] == '2 + 2?'\n"
        "    return (completion == answer) + columns['bonus']\n"
    )

    async def story(services: Services) -> float:
        return await PythonSource("p", 1.0, source).score_with(
            sample("4", answer="4", bonus=0.5), services
        )

    assert graded(story) == 1.5


def test_trls_functions_for_conversations_work_unchanged() -> None:
    source = (
        "def format_reward(completions, prompts, **kwargs):\n"
        "    assert prompts[0][0]['role'] == 'user'\n"
        "    return [float(len(completion[0]['content'])) for completion in completions]\n"
    )

    async def story(services: Services) -> float:
        return await PythonSource("p", 1.0, source, "messages").score_with(sample("four"), services)

    assert graded(story) == 4.0


def test_an_error_leaves_the_completion_ungraded_with_its_line() -> None:
    graders = (PythonSource("mine", 1.0, "def reward(completion):\n    return 1 / 0\n"),)

    async def story(services: Services) -> Any:
        return await grade(graders, sample("4"), services)

    found = graded(story)
    assert found.reward is None and found.rewards == {"mine": None}
    assert found.error == (
        "mine: python_grader_runtime_error: ZeroDivisionError: division by zero (line 2, in reward)"
    )


def test_completions_that_come_together_are_scored_together() -> None:
    grader = PythonSource("p", 1.0, COUNTING)

    async def story(services: Services) -> list[float]:
        waiting = [grader.score_with(sample(str(n)), services) for n in range(100)]
        return await asyncio.gather(*waiting)

    scores = graded(story)
    assert scores == [64.0] * 64 + [36.0] * 36


def test_one_that_is_no_longer_waited_for_costs_the_others_nothing() -> None:
    grader = PythonSource("p", 1.0, COUNTING)

    async def story(services: Services) -> Any:
        tasks = [
            asyncio.create_task(grader.score_with(sample(str(n)), services)) for n in range(10)
        ]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[5].cancel()
        scores = await asyncio.gather(*tasks, return_exceptions=True)
        again = await grader.score_with(sample("x"), services)
        return [score for score in scores if isinstance(score, float)], again

    scores, again = graded(story)
    assert scores == [8.0] * 8 and again == 1.0


def test_without_sandboxes_it_says_so() -> None:
    grader = PythonSource("p", 1.0, SOURCE)
    with pytest.raises(GraderError, match="this process has no sandboxes"):
        asyncio.run(grader.score_with(sample("4"), Services(tenant="alice")))
