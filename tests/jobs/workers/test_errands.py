"""A page asks, an environment worker answers: the real loop, sandbox and Redis, in one process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone
from redis import Redis

from engine.errors import QuotaError, SpecError
from jobs.models import Member, Worker
from jobs.services import dispatch, errands, joins
from jobs.services.errands import ErrandError, ask
from jobs.services.graders import save_grader
from jobs.services.secrets import save_secret
from jobs.services.trials import check_source, dataset_samples, try_graders
from jobs.web.grader_form import TEMPLATES
from jobs.workers import errands as work
from tests.jobs.errand_worker import errand_worker, living_row

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]
TRL = """
def reward(completions, answer, **columns):
    print("graded", len(completions))
    return [float(text == right) for text, right in zip(completions, answer)]
"""


@pytest.fixture
def living_worker(db: None) -> None:
    living_row()


@pytest.fixture
def worker(db: None) -> Iterator[None]:
    with errand_worker():
        yield


@pytest.fixture
def trial(acme: Any, alice: Any) -> Callable[..., Any]:
    return lambda graders, samples, user=alice: try_graders(
        tenant=acme, user=user, graders=graders, samples=samples
    )


def _samples(*completions: str) -> list[dict[str, Any]]:
    return [{"completion": text, "row": {"answer": "12"}} for text in completions]


def test_each_reward_function_says_its_score_of_each_sample(
    worker: None, trial: Any, acme: Any, alice: Any
) -> None:
    save_grader(tenant=acme, user=alice, name="right", spec={"type": "python", "source": TRL})
    found = trial(
        [
            {"type": "saved", "grader": "right", "weight": 2},
            {"type": "numeric", "weight": 0.5},
        ],
        _samples("12", "it is 12", "13"),
    )
    scores = [[one["score"] for one in sample["scores"]] for sample in found["samples"]]
    assert scores == [[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]
    assert [sample["reward"] for sample in found["samples"]] == [2.5, 0.5, 0.0]
    assert [(one["name"], one["output"]) for one in found["graders"]] == [
        ("right", "graded 3\n"),
        ("numeric", ""),
    ]
    assert all(one["duration_us"] > 0 for sample in found["samples"] for one in sample["scores"])


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_of_the_editor_score(worker: None, trial: Any, name: str) -> None:
    _, source = TEMPLATES[name]
    found = trial([{"type": "python", "source": source}], _samples(" 12", "13"))
    assert [sample["reward"] for sample in found["samples"]] == [1.0, 0.0]


def test_a_failure_is_told_with_its_line_and_ungrades_only_where_it_has_weight(
    worker: None, trial: Any
) -> None:
    source = (
        "def reward(prompt, completion, answer):\n    x = 1\n    return x / (len(answer) - 2)\n"
    )
    bad = {"type": "python", "source": source}
    found = trial([{**bad, "weight": 0}, {"type": "numeric"}], _samples("12"))
    (sample,) = found["samples"]
    assert sample["scores"][0]["score"] is None
    assert "ZeroDivisionError" in sample["scores"][0]["error"]
    assert sample["scores"][0]["line"] == 3
    assert sample["reward"] == 1.0
    (sample,) = trial([bad, {"type": "numeric"}], _samples("12"))["samples"]
    assert sample["reward"] is None


def test_a_column_that_is_not_there_is_said(worker: None, trial: Any) -> None:
    (sample,) = trial([{"type": "numeric", "target": "gold"}], _samples("12"))["samples"]
    assert "gold" in sample["scores"][0]["error"]
    assert sample["reward"] is None


def test_output_that_no_response_can_carry_is_mended(worker: None, trial: Any) -> None:
    source = "def grade(sample, item):\n    print(chr(0xd800))\n    return 1\n"
    found = trial([{"type": "python", "source": source}], _samples("12"))
    json.dumps(found, ensure_ascii=False).encode()
    assert found["samples"][0]["reward"] == 1.0


def test_the_tenants_own_secret_is_there_and_named_for_its_host_only(
    worker: None, trial: Any, acme: Any, alice: Any
) -> None:
    save_secret(tenant=acme, user=alice, name="key", host="other.example", value="s3cret")
    remote = {"type": "remote", "url": "https://grader.example/", "secret": "key"}
    (sample,) = trial([remote], _samples("12"))["samples"]
    assert "was saved for other.example" in sample["scores"][0]["error"]
    assert "s3cret" not in json.dumps(sample)


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        (TRL, None, ""),
        ("def reward(completions:\n    pass\n", 1, "SyntaxError"),
        ("import json\n\nimport nothing_there\n", 3, "ModuleNotFoundError"),
        ("x = 1\n", None, "defines none of"),
    ],
)
def test_source_is_checked_with_its_line(
    worker: None, acme: Any, alice: Any, source: str, line: int | None, message: str
) -> None:
    problem = check_source(tenant=acme, user=alice, source=source)["problem"]
    if not message:
        assert problem is None
        return
    assert message in problem["message"]
    assert problem["line"] == line


def test_an_endless_loop_ends(worker: None, acme: Any, alice: Any) -> None:
    problem = check_source(tenant=acme, user=alice, source="while True:\n    pass\n")["problem"]
    assert problem["message"]


def test_without_a_worker_it_is_said_at_once(acme: Any, alice: Any) -> None:
    with pytest.raises(ErrandError, match="No environment worker is running"):
        check_source(tenant=acme, user=alice, source="x = 1")
    assert list(dispatch.take_all("environment")) == []
    Worker.objects.create(
        name="e", kind="environment", host="here", pid=1,
        last_beat_at=timezone.now() - timedelta(minutes=1),
    )  # fmt: skip
    with pytest.raises(ErrandError, match="No environment worker is running"):
        check_source(tenant=acme, user=alice, source="x = 1")


def test_a_worker_that_does_not_answer_is_not_waited_for_for_ever(living_worker: None) -> None:
    with pytest.raises(ErrandError, match="No environment worker answered within"):
        ask("check", "1", {"source": "x"}, 0.2)


def test_a_lost_redis_is_told_and_not_waited_for(
    living_worker: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joins, "redis", Redis.from_url("redis://127.0.0.1:1/0"))
    with pytest.raises(ErrandError, match="The queue was lost"):
        ask("check", "1", {"source": "x"}, 60)


def test_an_errand_that_nobody_waits_for_is_not_run(
    worker: None, acme: Any, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Any] = []
    monkeypatch.setitem(work.KINDS, "check", lambda *rest: ran.append(rest))
    message = {"kind": "check", "tenant": str(acme.pk), "question": "{}", "key": "k"}
    work.errand({**message, "ends_at": time.time() - 1})
    time.sleep(0.1)
    assert (ran, redis.exists("k")) == ([], 0)


def test_a_fault_of_ours_is_answered_without_its_text(
    worker: None, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> Any:
        raise RuntimeError("private text")

    monkeypatch.setitem(work.KINDS, "check", fail)
    with pytest.raises(ErrandError, match="fault of the service") as caught:
        ask("check", str(acme.pk), {"source": "x"}, 10)
    assert "private text" not in str(caught.value)


def test_questions_and_answers_are_bounded(
    worker: None, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(QuotaError, match="may be sent at once"):
        ask("check", str(acme.pk), {"source": "x" * 2**20}, 10)

    async def talk(*_: Any) -> Any:
        return {"text": "x" * 2**20}

    monkeypatch.setitem(work.KINDS, "check", talk)
    with pytest.raises(ErrandError, match="The answer has more than"):
        ask("check", str(acme.pk), {"source": "x"}, 10)


def test_a_tenant_has_few_errands_at_once_and_leaves_room_for_others(
    living_worker: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errands, "MAX_WAITING_OF_TENANT", 1)
    with errands._turn("1"):
        with pytest.raises(QuotaError, match="Too many"):
            ask("check", "1", {"source": "x"}, 0.1)
        with pytest.raises(ErrandError):  # nobody answers, but it was asked
            ask("check", "2", {"source": "x"}, 0.1)
    with pytest.raises(ErrandError):
        ask("check", "1", {"source": "x"}, 0.1)


def test_viewers_and_strangers_try_nothing(
    living_worker: None, acme: Any, make_user: Any, mallory: Any
) -> None:
    for user in (make_user("vera", acme, Member.Role.VIEWER), mallory):
        with pytest.raises(PermissionDenied):
            try_graders(tenant=acme, user=user, graders=[{"type": "length"}], samples=_samples("1"))
        with pytest.raises(PermissionDenied):
            check_source(tenant=acme, user=user, source="x")
    assert list(dispatch.take_all("environment")) == []


@pytest.mark.parametrize(
    ("samples", "path"),
    [
        ([], "samples"),
        ("text", "samples"),
        ([{}] * 21, "samples"),
        (["text"], "samples.0"),
        ([{"row": []}], "samples.0"),
        ([{"completion": 7}], "samples.0.completion"),
        ([{"completion": "x" * 50_001}], "samples.0.completion"),
    ],
)
def test_wrong_samples_are_told_by_place(trial: Any, samples: Any, path: str) -> None:
    with pytest.raises(SpecError) as caught:
        trial([{"type": "length"}], samples)
    assert list(caught.value.fields) == [path]


def test_a_dataset_gives_rows_for_completions(dataset: Any) -> None:
    found = dataset_samples(dataset, 3, ["1"])
    assert [(one["completion"], one["row"]["answer"]) for one in found] == [
        ("1", "1"),
        ("", "2"),
        ("", "3"),
    ]
    with pytest.raises(SpecError):
        dataset_samples(dataset, 3, "text")
