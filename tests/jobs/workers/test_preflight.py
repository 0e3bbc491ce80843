"""A check from the row to the report: good and faulty tasks, tools, and rollouts that fail.

Real rows, Redis, graders and event loop; what stands in is the engine, which says what a test has
it say.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import close_old_connections

from engine.models.chat import ChatTokenizer
from engine.types import Generation, GenerationRequest
from jobs import artifacts
from jobs.models import BaseModel, Dataset, Preflight, TokenUsage
from jobs.services import dispatch, samples
from jobs.services import preflight as checks
from jobs.workers import environment, hosting, preflight, preflight_data, preflight_episodes
from jobs.workers.sampling import Samples
from tests.tiny import EOS_ID, build_tiny_model

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]

Says = Callable[[str, GenerationRequest], str]  # what follows a prompt


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[environment.EnvironmentHost]:
    monkeypatch.setattr(hosting, "_heartbeat", SimpleNamespace(incarnation="e"))
    host = environment.EnvironmentHost(50)
    monkeypatch.setattr(environment, "_host", host)
    yield host
    host.stop_taking()
    host.hand_back()


class Rollout:
    """A rollout worker whose engine says what it is told to."""

    def __init__(self, model: Path, says: Says) -> None:
        self.chat, self.says = ChatTokenizer(model), says
        self.samples = Samples((EOS_ID,))
        self.requests: list[GenerationRequest] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._live)
        self._thread.start()

    def _live(self) -> None:
        while not self._is_over.wait(0.01):
            for _, message in dispatch.take_all("rollout.tiny"):
                for request in self.samples.requests(message):
                    self.requests.append(request)
                    self.samples.take(self._made(request))
        close_old_connections()

    def _made(self, request: GenerationRequest) -> Generation:
        said = self.says(self.chat.decode(request.ids), request)
        if said.startswith("ERROR "):
            return Generation(request.id, finish_reason="error", error=said[6:])
        ids = self.chat._tokenizer.encode(said, add_special_tokens=False).ids
        limit = request.sampling.max_new_tokens
        ids, reason = ([*ids, EOS_ID], "stop") if len(ids) < limit else (ids[:limit], "length")
        logprobs = (-1.0,) * len(ids)
        digest = request.adapter.digest
        return Generation(request.id, (*ids,), logprobs, reason, digest, 10.0, 12.0)

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()


@pytest.fixture
def rollout(model: Path) -> Iterator[Callable[[Says], Rollout]]:
    made: list[Rollout] = []

    def make(says: Says) -> Rollout:
        made.append(Rollout(model, says))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.fixture
def check(
    acme: Any, alice: Any, base_model: Any, dataset: Any, model: Path
) -> Callable[..., Preflight]:
    """Runs a check of a task on forty sums; rows: others instead."""
    BaseModel.objects.update(path=str(model), max_model_length=2048)

    def run(
        rows: list[dict[str, Any]] | None = None,
        config: dict[str, Any] | None = None,
        graders: list[dict[str, Any]] | None = None,
    ) -> Preflight:
        rows = rows or _sums()
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        artifacts.put("datasets/fixture.jsonl", data)
        Dataset.objects.filter(pk=dataset.pk).update(num_rows=len(rows), columns=list(rows[0]))
        small = {"batch_size": 4, "group_size": 4, "lora_rank": 4, "max_completion_length": 40}
        row = checks.start_preflight(
            tenant=acme,
            user=alice,
            name="sums",
            base_model="tiny",
            dataset=str(dataset.pk),
            config={**small, **(config or {})},
            graders=graders or [{"type": "numeric"}],
        )
        preflight.check_task({"preflight": str(row.pk)})
        row.refresh_from_db()
        return row

    return run


def _sums(count: int = 40) -> list[dict[str, Any]]:
    return [
        {
            "messages": [{"role": "user", "content": f"What is {n} + {2 * n}?"}],
            "id": str(1000 + n),
            "answer": str(3 * n * (1 if n % 2 else -1)),
        }
        for n in range(count)
    ]


def _answer(prompt: str) -> int:
    n = int(prompt.split("What is ")[1].split(" ")[0])
    return 3 * n * (1 if n % 2 else -1)


def _now_and_then(prompt: str, request: GenerationRequest) -> str:
    """Half of all answers are right, by chance."""
    return str(_answer(prompt)) if request.seed % 2 else "99999"


def _codes(row: Preflight) -> list[str]:
    assert row.state == "done", row.error
    return [problem["code"] for problem in row.report["problems"]]


def test_a_good_task_gets_figures_and_no_reproach(check: Any, rollout: Any, acme: Any) -> None:
    worker = rollout(_now_and_then)
    row = check()
    assert _codes(row) == []
    report = row.report
    assert (report["lengths"]["num_rows"], report["lengths"]["num_over"]) == (40, 0)
    (references,) = report["references"]
    assert (references["num_checked"], references["num_unusable"]) == (40, 0)
    found = report["samples"]
    assert (found["num_prompts"], found["num_samples"]) == (16, 64)
    right = sum(_now_and_then("What is 1 +", request) == "3" for request in worker.requests)
    assert found["solve_rate"] == found["mean_reward"] == pytest.approx(right / 64)
    assert (found["rollout_s"], found["truncated_share"]) == (2.0, 0.0)
    assert found["latency_p95_s"]["numeric"] > 0
    assert report["zero_variance"]["num_groups"] == 16
    assert 0.05 < report["zero_variance"]["expected"] < 0.35  # at even odds: 2 / 2^4
    assert report["costs"]["tokens_per_s"] > 0
    assert {example["why"] for example in report["examples"]} >= {"highest reward"}
    prompts = {request.ids for request in worker.requests}
    generated = sum(found["num_samples"] * [found["mean_length"]])
    tokens = TokenUsage.objects.get(tenant=acme).tokens
    assert tokens == pytest.approx(sum(map(len, prompts)) + generated)


def test_the_same_task_is_checked_on_the_same_prompts_with_the_same_seeds(
    check: Any, rollout: Any
) -> None:
    worker = rollout(_now_and_then)
    check()
    first = sorted((request.ids, request.seed) for request in worker.requests)
    worker.requests.clear()
    check()
    assert sorted((request.ids, request.seed) for request in worker.requests) == first


def test_samples_come_from_the_untrained_adapter_and_leave_nothing(
    check: Any, rollout: Any, redis: Any
) -> None:
    worker = rollout(_now_and_then)
    row = check(config={"temperature": 0.8})
    adapters = {(one.adapter.version, one.adapter.digest) for one in worker.requests}
    assert len(adapters) == 1
    assert {one.sampling.temperature for one in worker.requests} == {0.8}
    with pytest.raises(artifacts.ArtifactError):
        artifacts.local_directory(f"{checks.files_key(row.pk)}/adapter")
    assert [key for key in redis.scan_iter() if str(row.pk).encode() in key] == []


def test_nothing_solved_and_everything_solved_are_told(check: Any, rollout: Any) -> None:
    says = {"text": "99999"}
    rollout(lambda prompt, _: says["text"] or str(_answer(prompt)))
    assert _codes(check()) == ["none_solved"]
    says["text"] = ""
    assert _codes(check()) == ["all_solved"]


def test_all_prompts_overlong_are_told_without_generating_anything(check: Any) -> None:
    row = check(config={"max_prompt_length": 20})
    assert _codes(row) == ["all_overlong"]
    assert row.report["samples"] is None
    assert "Nothing was sampled" in row.report["remarks"][0]


def test_a_reference_in_another_column_is_found(check: Any, rollout: Any) -> None:
    rollout(_now_and_then)
    row = check(graders=[{"type": "numeric", "target": "id"}])
    assert _codes(row)[0] == "wrong_column"
    assert row.report["problems"][0]["fix"] == "Set the target of 'numeric' to 'answer'."


def test_completions_that_are_cut_off_are_told(check: Any, rollout: Any) -> None:
    rollout(lambda prompt, request: "and " * 200 if request.seed % 3 else str(_answer(prompt)))
    assert "most_truncated" in _codes(check())


def test_a_grader_that_cannot_work_is_told_with_its_error(check: Any, rollout: Any) -> None:
    rollout(_now_and_then)
    grader = {"type": "python", "name": "mine", "source": "def grade(sample, item):\n    return x"}
    row = check(graders=[grader])
    assert _codes(row)[0] == "grader_fails"
    assert "'mine'" in row.report["problems"][0]["sentence"]
    assert "NameError" in row.report["problems"][0]["sentence"]
    assert row.report["samples"]["ungraded_share"] == 1.0


def test_references_are_checked_where_the_grader_needs_a_process(check: Any, rollout: Any) -> None:
    rollout(_now_and_then)
    rows = [
        {**row, "answer": r"\frac{1}{2} +" if n == 3 else "x+1"} for n, row in enumerate(_sums())
    ]
    (found,) = check(rows, graders=[{"type": "math"}]).report["references"]
    assert found["num_checked"] == 16
    assert found["num_unequal"] == 0


def test_whole_episodes_are_run_where_the_policy_uses_tools(check: Any, rollout: Any) -> None:
    def calls_then_answers(prompt: str, request: GenerationRequest) -> str:
        if "result" not in prompt and "error" not in prompt and request.seed % 2:
            call = {"name": "calculator", "arguments": {"formula": "1 + 1"}}
            return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
        return str(_answer(prompt))

    rollout(calls_then_answers)
    tools = {"type": "tools", "tools": [{"type": "calculator"}], "format": "hermes"}
    row = check(config={"environment": tools, "max_completion_length": 300, "max_turns": 2})
    found = row.report["samples"]
    assert row.report["tool_format"] == "hermes"
    assert 0 < found["num_calls"] < 64
    assert found["valid_call_share"] == 1.0
    assert found["mean_observed"] > 0
    assert "no_calls" not in _codes(row)
    assert any("tool results are" in note for note in row.report["notes"])


def test_an_answer_that_a_tool_gave_is_not_the_policys(check: Any, rollout: Any) -> None:
    def calls_and_ignores(prompt: str, request: GenerationRequest) -> str:
        if "tool_call" in prompt:
            return "nothing"
        call = {"name": "calculator", "arguments": {"formula": f"{_answer(prompt)} + 0"}}
        return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"

    rollout(calls_and_ignores)
    tools = {"type": "tools", "tools": [{"type": "calculator"}], "format": "hermes"}
    row = check(config={"environment": tools, "max_completion_length": 400, "max_turns": 2})
    found = row.report["samples"]
    assert found["valid_call_share"] == 1.0
    assert found["num_unsolved_with_reference"] == 0
    assert {"none_solved"} <= set(_codes(row)) <= {"none_solved", "template", "template_note"}
    example = row.report["examples"][0]
    assert example["num_observed"] > 0
    assert "nothing" in example["text"]


def test_a_tool_that_always_fails_is_an_error_with_its_reason(check: Any, rollout: Any) -> None:
    def calls_in_vain(prompt: str, request: GenerationRequest) -> str:
        if "error" in prompt:
            return str(_answer(prompt))
        call = {"name": "calculator", "arguments": {"formula": "1 +"}}
        return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"

    rollout(calls_in_vain)
    tools = {"type": "tools", "tools": [{"type": "calculator"}], "format": "hermes"}
    row = check(config={"environment": tools, "max_completion_length": 400, "max_turns": 2})
    (problem,) = [one for one in row.report["problems"] if one["code"] == "failing_calls"]
    found = row.report["samples"]
    assert problem["severity"] == "error"
    assert found["call_failure"] in problem["sentence"]
    assert found["num_call_failures"] == found["num_calls"] > 0


def test_a_function_that_always_gives_the_same_is_not_taken_for_solved(
    check: Any, rollout: Any
) -> None:
    rollout(_now_and_then)
    formula = {"parts": {"type": "numeric"}}
    always = {"type": "multi", "graders": formula, "calculate_output": "parts * 0 + 0.5"}
    row = check(graders=[always])
    first = row.report["problems"][0]
    assert row.report["samples"]["full_reward"] is None
    assert first["code"] == "constant_reward"
    assert "the same reward, 0.5, in all" in first["sentence"]


def test_an_engine_that_refuses_the_adapter_is_a_finding_not_a_fault(
    check: Any, rollout: Any
) -> None:
    rollout(lambda *_: "ERROR rank 4 does not fit")
    row = check()
    assert _codes(row) == ["generation_fails"]
    assert "rank 4 does not fit" in row.report["problems"][0]["sentence"]


def test_a_rollout_that_never_answers_is_a_finding_too(
    check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight_episodes, "SILENCE_S", 0.3)
    row = check()
    assert _codes(row) == ["generation_fails"]
    assert "no rollout worker answered" in row.report["problems"][0]["sentence"]


def test_what_a_dying_rollout_worker_lost_is_asked_for_again(
    check: Any, rollout: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight_episodes, "SILENCE_S", 0.5)
    lost: set[str] = set()
    answer = samples.answer

    def forgetful(pk: str, id: str, generation: Generation) -> None:
        if id in lost or len(lost) >= 5:
            answer(pk, id, generation)
        lost.add(id)

    monkeypatch.setattr(samples, "answer", forgetful)
    rollout(_now_and_then)
    found = check().report["samples"]
    assert (found["num_samples"], found["num_failed"]) == (64, 0)


def test_successors_of_a_rollout_worker_are_asked_at_once(
    check: Any, rollout: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first worker takes everything along; the second one is told of all of it."""
    monkeypatch.setattr(preflight_episodes, "WORKERS_S", 0.2)
    lives = iter([frozenset("1")] * 3)
    monkeypatch.setattr(preflight, "incarnations", lambda slug: next(lives, frozenset("2")))
    is_dead = threading.Event()
    answer = samples.answer

    def take_along(pk: str, id: str, generation: Generation) -> None:
        if is_dead.is_set():
            answer(pk, id, generation)

    monkeypatch.setattr(samples, "answer", take_along)
    asked: list[int] = []
    ask = samples.ask

    def note(source: Any, wanted: Any) -> None:
        asked.append(len(wanted))
        if len(asked) > 2:  # the window has two prompts
            is_dead.set()
        ask(source, wanted)

    monkeypatch.setattr(samples, "ask", note)
    rollout(_now_and_then)
    found = check().report["samples"]
    assert (found["num_samples"], found["num_failed"]) == (64, 0)
    assert asked[:3] == [4, 4, 8]


def test_a_worker_that_leaves_gives_its_check_back(
    check: Any, rollout: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving = threading.Event()
    monkeypatch.setattr(preflight, "_leaving", leaving)

    def leave(prompt: str, request: GenerationRequest) -> str:
        leaving.set()
        return "1"

    worker = rollout(leave)
    row = check()
    assert (row.state, row.doing) == ("queued", "waiting for a worker")
    leaving.clear()
    worker.says = _now_and_then
    messages = [message for _, message in dispatch.take_all("chores")]
    assert messages[-1] == {"preflight": str(row.pk)}
    preflight.check_task(messages[-1])
    row.refresh_from_db()
    assert row.state == "done"


def test_large_datasets_are_sampled_and_the_report_says_so(
    check: Any, rollout: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight_data, "MAX_ROWS", 10)
    rollout(_now_and_then)
    row = check()
    assert row.report["lengths"]["num_looked_at"] == 10
    assert row.report["samples"]["num_prompts"] == 10
    assert "10 of 40 rows were looked at, chosen at random." in row.report["remarks"]


def test_a_check_that_is_ended_meanwhile_writes_nothing_more(
    check: Any, rollout: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "BEAT_S", 0.0)

    def end_it(prompt: str, request: GenerationRequest) -> str:
        Preflight.objects.update(state="failed", error="ended")
        return "1"

    rollout(end_it)
    row = check()
    assert (row.state, row.error, row.report) == ("failed", "ended", {})
    assert not samples.is_open(str(row.pk))


def test_a_fault_that_nobody_foresaw_ends_the_check(
    check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: str) -> Any:
        raise KeyError("template")

    monkeypatch.setattr(preflight, "chat_tokenizer", broken)
    row = check()
    assert row.state == "failed"
    assert row.error.startswith("internal error: KeyError")


def test_a_check_that_finds_no_room_is_run_by_who_ends_first(
    check: Any, rollout: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout(_now_and_then)
    none = threading.BoundedSemaphore(1)
    none.acquire()
    monkeypatch.setattr(preflight, "_room", none)
    waiting = check()
    assert waiting.state == "queued"
    monkeypatch.setattr(preflight, "_room", threading.BoundedSemaphore(1))
    assert check().state == "done"
    waiting.refresh_from_db()
    assert waiting.state == "done"
