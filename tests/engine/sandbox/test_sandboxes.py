"""Scoring, checking and executing tenants' sources in real children."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from engine.sandbox import Sandboxes, Score, Value, component

from .conftest import Run, call

PER_ROW = """
def reward(prompt, completion, answer, **fields):
    print("asked", prompt)
    return float(completion.strip() == answer)
"""
OPENAI = """
def grade(sample, item):
    if sample["output_json"] is None:
        return float(len(sample["output_text"]) + len(sample["messages"]))
    return sample["output_json"]["a"] * item["k"]
"""
TRL = """
def reward(completions, prompts, answer, **columns):
    return [None if c == "skip" else float(c == a) for c, a in zip(completions, answer)]
"""
TRL_CHAT = """
def length_reward(completions, **kwargs):
    return [float(len(completion[0]["content"])) for completion in completions]

def _helper(completions):
    return None
"""


def test_a_function_for_each_row_is_called_with_its_columns(score: Callable[..., Score]) -> None:
    assert score(PER_ROW, " 4 ", answer="4") == Score(1.0)
    assert score(PER_ROW, "5", answer="4") == Score(0.0)


def test_openais_function_gets_a_sample_and_an_item(score: Callable[..., Score]) -> None:
    assert score(OPENAI, '{"a": 2}', k=3) == Score(6.0)
    assert score(OPENAI, "text", k=3) == Score(6.0)


def test_trls_function_gets_lists_and_may_leave_one_ungraded(
    run: Run, sandboxes: Sandboxes
) -> None:
    calls = [call("4", answer="4"), call("skip", answer="4"), call("5", answer="4")]
    first, second, third = run(sandboxes.score("alice", TRL, calls))
    assert (first, third) == (Score(1.0), Score(0.0))
    assert second.value is None and "returned None" in second.error


def test_trls_function_may_have_any_name_and_get_chats(run: Run, sandboxes: Sandboxes) -> None:
    calls = [{**call("four"), "chat": True}, {**call("4"), "chat": True}]
    assert run(sandboxes.score("alice", TRL_CHAT, calls)) == [Score(4.0), Score(1.0)]


def test_a_missing_column_is_named(score: Callable[..., Score]) -> None:
    found = score(PER_ROW, "4")
    assert found.value is None
    assert found.error.startswith("invalid_variable_error: the function asks for 'answer'")


def test_an_error_has_the_line_and_the_way_to_it(score: Callable[..., Score]) -> None:
    source = "def inner():\n    return 1 / 0\n\ndef reward(completion):\n    return inner()\n"
    assert score(source) == Score(
        None,
        "python_grader_runtime_error: ZeroDivisionError: division by zero"
        " (line 2, in inner; called from line 5, in reward)",
        2,
    )


def test_a_row_that_fails_in_trls_function_costs_only_itself(
    run: Run, sandboxes: Sandboxes
) -> None:
    source = "def reward(completions, **k):\n    return [1 / float(c) for c in completions]\n"
    good, bad, other = run(sandboxes.score("alice", source, [call("1"), call("0"), call("2")]))
    assert (good, other) == (Score(1.0), Score(0.5))
    assert bad.value is None and bad.line == 2 and "ZeroDivisionError" in bad.error


def test_a_wrong_number_of_scores_is_refused(run: Run, sandboxes: Sandboxes) -> None:
    source = "def reward(completions, **k):\n    return [1.0]\n"
    found = run(sandboxes.score("alice", source, [call("1"), call("2")]))
    assert [s.value for s in found] == [None, None]
    assert "1 scores for 2 completions" in found[0].error


def test_what_is_printed_comes_back_with_a_trial(run: Run, sandboxes: Sandboxes) -> None:
    trial = run(sandboxes.trial("alice", PER_ROW, [call("4", answer="4")]))
    assert trial.scores == [Score(1.0)] and trial.output == "asked 2 + 2?\n"


def test_text_of_all_scripts_and_lone_surrogates_arrive(score: Callable[..., Score]) -> None:
    source = (
        "def reward(completion):\n    return [*map(ord, completion)] == [233, 0x1F600, 0xD800]\n"
    )
    assert score(source, "é😀\ud800") == Score(1.0)


def test_who_waits_when_sandboxes_are_closed_is_told(run: Run) -> None:
    async def story() -> list[Score]:
        closing = Sandboxes(max_children=1)
        first = asyncio.create_task(closing.score("alice", PER_ROW, [call("4", answer="4")]))
        second = asyncio.create_task(closing.score("alice", PER_ROW, [call("4", answer="4")]))
        await asyncio.sleep(0)
        await closing.close()
        return [*await first, *await second]

    for found in run(story()):
        assert found.error.startswith("python_grader_server_error: the sandbox")


def test_no_rows_are_no_scores(run: Run, sandboxes: Sandboxes) -> None:
    assert run(sandboxes.score("alice", PER_ROW, [])) == []


def test_each_call_has_a_fresh_interpreter(score: Callable[..., Score]) -> None:
    source = "n = 0\ndef reward(completion):\n    global n\n    n += 1\n    return n\n"
    assert [score(source).value for _ in range(3)] == [1.0, 1.0, 1.0]


def test_an_instance_is_kept_for_our_own_sources_only(run: Run, sandboxes: Sandboxes) -> None:
    source = "n = 0\ndef run(step):\n    global n\n    n += step\n    return [n]\n"

    def values(is_kept: bool) -> list[Value]:
        turns = [sandboxes.values("alice", source, [{"step": 2}], is_kept=is_kept) for _ in "ab"]
        return [value for turn in turns for value in run(turn)]

    assert values(is_kept=False) == [Value([2]), Value([2])]
    assert values(is_kept=True) == [Value([2]), Value([4])]


def test_a_source_is_checked_without_calling_it(run: Run, sandboxes: Sandboxes) -> None:
    def problem(source: str) -> tuple[str, int | None] | None:
        found = run(sandboxes.check("alice", source))
        return (found.message, found.line) if found else None

    assert problem(PER_ROW) is None
    assert problem("x = 1\ndef reward(:\n") == ("SyntaxError: invalid syntax (line 2)", 2)
    assert problem("x = 1\n1 / 0\n") == (
        "ZeroDivisionError: division by zero (line 2, in <module>)",
        2,
    )
    found = problem("x = 1")
    assert found and found[0].startswith("the source defines none of: grade(sample, item)")
    found = problem("import numpy")
    assert found and "No module named 'numpy' in the sandbox" in found[0] and found[1] == 1
    found = problem("#" * 70_000)
    assert found and "70,000 bytes" in found[0]


def test_a_completion_that_does_not_parse_is_a_syntax_error_to_the_function(
    score: Callable[..., Score],
) -> None:
    source = (
        "import ast\n"
        "def reward(completion):\n"
        "    try:\n        ast.parse(completion)\n"
        "    except SyntaxError as error:\n        return -error.lineno\n"
        "    return 1\n"
    )
    assert score(source, "x = 1").value == 1.0
    assert score(source, "x = 1\nx = = 1").value == -2.0


def test_the_python_tool_keeps_its_variables_over_turns(run: Run, sandboxes: Sandboxes) -> None:
    def turn(code: str, session: str = "one") -> tuple[str, str, int | None]:
        found = run(sandboxes.execute("alice", session, code))
        return found.output, found.error, found.line

    assert turn("x = 20\nprint('set')") == ("set\n", "", None)
    assert turn("x + 1") == ("21\n", "", None)
    assert turn("x", "another") == (
        "",
        "NameError: name 'x' is not defined (line 1, in <module>)",
        1,
    )
    assert turn("print(x)\nx.y")[0:2] == (
        "20\n",
        "AttributeError: 'int' object has no attribute 'y' (line 2, in <module>)",
    )
    run(sandboxes.end("alice", "one"))
    assert turn("x")[1].startswith("NameError")


def test_the_python_tool_says_when_its_variables_are_gone(run: Run, sandboxes: Sandboxes) -> None:
    run(sandboxes.execute("alice", "lost", "x = 1"))
    stopped = run(sandboxes.execute("alice", "lost", "while True: pass"))
    assert stopped.error == "the code took longer than 5 s"
    after = run(sandboxes.execute("alice", "lost", "print(2)"))
    assert after.output == "2\n" and after.is_restarted


def test_every_layer_of_the_seal_holds_here_and_is_told(
    score: Callable[..., Score], sandboxes: Sandboxes
) -> None:
    score(PER_ROW, "4", answer="4")
    names = [layer["name"] for layer in sandboxes.layers]
    assert names == ["rlimits", "no_new_privs", "landlock", "seccomp"]
    assert sandboxes.layers[0]["holds"] and sandboxes.layers[1]["holds"]


def test_a_row_that_cannot_be_written_down_costs_only_itself(
    run: Run, sandboxes: Sandboxes
) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    calls = [call("4", answer="4"), call("4", answer=deep), call("4", answer="x" * (9 << 20))]
    good, nested, large = run(sandboxes.score("alice", PER_ROW, calls))
    assert good == Score(1.0)
    assert nested.error.startswith("invalid_variable_error: the row cannot be passed on")
    assert large.error == "invalid_variable_error: the rows are larger than 8 MiB"


def test_without_seccomp_a_strict_site_runs_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = component._RUN_CHILD.replace(
        "runpy.run", "from child import syscalls; syscalls.TABLES.clear(); runpy.run"
    )
    monkeypatch.setattr(component, "_RUN_CHILD", lacking)

    async def scored() -> tuple[list[Score], bool]:
        sandboxes = Sandboxes(max_children=1)
        try:
            found = await sandboxes.score("alice", PER_ROW, [call("4", answer="4")] * 2)
            return found, bool(sandboxes.layers and sandboxes.layers[-1]["holds"])
        finally:
            await sandboxes.close()

    assert run(scored()) == ([Score(1.0), Score(1.0)], False)
    monkeypatch.setenv("MARLAAS_SANDBOX_REQUIRE_SECCOMP", "1")
    for score in run(scored())[0]:
        assert score.error.startswith("python_grader_server_error: the sandbox: it could not start")
        assert "seccomp does not hold here" in score.error
