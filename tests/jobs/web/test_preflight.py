"""Checks by form: begun, followed, shown; with fields that are wrong told, and nobody else's."""

from __future__ import annotations

import html
from dataclasses import replace
from typing import Any

import pytest

from engine.preflight import OtherColumn, Speeds, diagnose, estimate_costs
from jobs.models import Member, Preflight, Task
from jobs.services import preflight as checks
from jobs.web.preflight_figures import milliseconds
from tests.engine.preflight.reports import make_outcomes, make_report

from .test_new_task import _form

pytestmark = pytest.mark.django_db
JSON = {"Accept": "application/json"}


def _post(client: Any, dataset: Any, headers: Any = None, **changes: str) -> Any:
    return client.post("/tasks/new/check/", _form(dataset, **changes), headers=headers)


def test_a_form_begins_a_check_and_no_task(
    browser_of: Any, alice: Any, dataset: Any, base_model: Any
) -> None:
    client = browser_of(alice)
    answer = _post(client, dataset, name="")
    row = Preflight.objects.get()
    assert answer.headers["Location"] == f"/preflights/{row.pk}/"
    assert not Task.objects.exists()
    assert (row.name, row.created_by, row.tenant) == ("Unnamed task", alice, dataset.tenant)
    assert row.hyperparameters.max_steps == 7
    page = client.get(f"/preflights/{row.pk}/").content.decode()
    assert "Checking: waiting for a worker" in page
    assert '<meta http-equiv="refresh" content="3">' in page


def test_scripts_are_told_where_to_look(
    browser_of: Any, alice: Any, dataset: Any, base_model: Any
) -> None:
    client = browser_of(alice)
    answer = _post(client, dataset, JSON)
    row = Preflight.objects.get()
    assert (answer.status_code, answer.json()) == (
        202,
        {"page": f"/preflights/{row.pk}/", "part": f"/preflights/{row.pk}/part/"},
    )
    part = client.get(answer.json()["part"]).content.decode()
    assert 'data-preflight-state="queued"' in part
    assert "<html" not in part


def test_wrong_fields_are_told_beside_them_or_to_the_script(
    browser_of: Any, alice: Any, dataset: Any, base_model: Any
) -> None:
    client = browser_of(alice)
    wrong = {"config.learning_rate": "fast", "graders.0.target": "nothing"}
    page = _post(client, dataset, **wrong)
    assert page.status_code == 422
    text = html.unescape(page.content.decode())
    assert "Must be a number, not 'fast'." in text
    assert 'value="fast"' in text
    told = _post(client, dataset, JSON, **wrong)
    assert told.status_code == 422
    ids = [id for id, _, _ in told.json()["summary"]]
    assert ids == ["id_config_learning_rate", "id_graders_0_target"]
    assert not Preflight.objects.exists()


def test_too_many_at_once_are_told(
    browser_of: Any, alice: Any, dataset: Any, base_model: Any
) -> None:
    client = browser_of(alice)
    for _ in range(checks.MAX_UNDER_WAY):
        assert _post(client, dataset, JSON).status_code == 202
    told = _post(client, dataset, JSON)
    assert "3 checks of Acme are under way" in told.json()["summary"][0][2]


@pytest.fixture
def done(acme: Any, alice: Any, base_model: Any, dataset: Any, task: Any) -> Preflight:
    """A check whose reference column is wrong, with every part of a report."""
    report = make_report([[0.0] * 4] * 8)
    outcomes = make_outcomes([[0.0] * 4] * 8)
    costs = estimate_costs(
        outcomes,
        report.config,
        Speeds(tokens_per_s=250.0, num_other_tasks=1),
        mean_prompt=9.0,
        num_prompts=40,
        tokens_per_day=50_000,
        tokens_today=10_000,
    )
    example = {
        "why": "lowest reward",
        "row": 7,
        "prompt": "What is 1 + 1?",
        "references": {"numeric": "1007"},
        "text": "<b>2</b>",
        "reward": 0.0,
        "rewards": {"numeric": 0.0},
        "error": "",
        "stop_reason": "stop",
        "num_tokens": 3,
        "num_observed": 40,
    }
    report = replace(
        report,
        costs=costs,
        other_columns=(OtherColumn("numeric", "id", 0.0, "answer", 0.6),),
        examples=(example,),
        remarks=("20,000 of 90,000 rows were looked at, chosen at random.",),
    )
    row = Preflight.objects.create(
        tenant=acme,
        created_by=alice,
        name="sums of alice",
        base_model=base_model,
        dataset=dataset,
        config=task.config,
        graders=task.graders,
        state="running",
    )
    checks.finish(row, report.to_json(diagnose(report)), 0)
    return row


def test_a_report_shows_problems_first_and_each_figure_with_its_unit(
    browser_of: Any, bob: Any, done: Preflight
) -> None:
    page = html.unescape(browser_of(bob).get(f"/preflights/{done.pk}/").content.decode())
    assert page.index('data-problem="wrong_column"') < page.index('data-problem="none_solved"')
    assert page.index('data-problem="none_solved"') < page.index(">Solve rate<")
    assert "Set the target of 'numeric' to 'answer'." in page
    assert "<dd>0 % <span" in page
    assert "of 32 samples of 8 prompts; solved: reward 1" in page
    assert "100 % of groups" in page
    assert "<dd>9 tokens</dd>" in page
    assert '<td class="number">1 ms</td>' in page
    assert "at 250 tokens/s seen, with 1 other task running" in page
    assert "40\u202f000 of 50\u202f000 left today" in page
    assert "20,000 of 90,000 rows were looked at" in page
    assert "Of the 8 groups of this check 100 % had one reward throughout" in page
    assert "3 tokens generated, 40 read from the environment" in page
    assert "http-equiv" not in page


def test_what_a_model_says_is_text(browser_of: Any, bob: Any, done: Preflight) -> None:
    page = browser_of(bob).get(f"/preflights/{done.pk}/").content.decode()
    assert "&lt;b&gt;2&lt;/b&gt;" in page
    assert "<b>2</b>" not in page


def test_the_part_beside_the_form_is_short(browser_of: Any, bob: Any, done: Preflight) -> None:
    part = browser_of(bob).get(f"/preflights/{done.pk}/part/").content.decode()
    assert 'data-preflight-state="done"' in part
    assert "Solve rate" in part
    assert "Of the 8 groups of this check" in part
    assert f'href="/preflights/{done.pk}/"' in part
    assert "What is 1 + 1?" not in part


def test_a_failed_check_says_why(browser_of: Any, bob: Any, done: Preflight) -> None:
    Preflight.objects.update(state="failed", error="The worker has gone silent.", report={})
    page = browser_of(bob).get(f"/preflights/{done.pk}/").content.decode()
    assert "The worker has gone silent." in page


def test_a_stranger_finds_nothing(
    browser_of: Any, mallory: Any, dataset: Any, base_model: Any, done: Preflight
) -> None:
    stranger = browser_of(mallory)
    for path in (f"/preflights/{done.pk}/", f"/preflights/{done.pk}/part/"):
        answer = stranger.get(path)
        assert answer.status_code == 404
        assert "alice" not in answer.content.decode()
    told = _post(stranger, dataset, JSON)
    assert told.status_code == 422
    assert Preflight.objects.count() == 1


def test_a_viewer_may_not_begin_one(
    browser_of: Any, make_user: Any, acme: Any, dataset: Any, base_model: Any
) -> None:
    vera = make_user("vera", acme, Member.Role.VIEWER)
    assert _post(browser_of(vera), dataset, JSON).status_code == 403
    assert not Preflight.objects.exists()


def test_short_times_are_shown_as_such() -> None:
    shown = [milliseconds(s) for s in (None, 0.00012, 0.0045, 0.31, 2.44)]
    assert shown == ["–", "0.12 ms", "4.5 ms", "310 ms", "2.4 s"]
