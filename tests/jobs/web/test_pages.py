"""What pages say and do without scripts."""

from __future__ import annotations

import io
import json
import re
import zipfile
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from knox.models import AuthToken

from jobs import artifacts
from jobs.models import Dataset, Member, PolicyVersion, Step, Task, Tenant, TokenLabel, User
from jobs.services.lifecycle import move_task

pytestmark = pytest.mark.django_db


def _upload(rows: list[str]) -> SimpleUploadedFile:
    return SimpleUploadedFile("rows.jsonl", "\n".join(rows).encode())


def test_a_page_asks_who_one_is(client: Client) -> None:
    answer = client.get("/tasks/")
    assert answer.headers["Location"] == "/accounts/login/?next=/tasks/"


def test_one_signs_in_by_e_mail_and_is_told_neutrally_when_wrong(
    client: Client, alice: Any, redis: Any
) -> None:
    wrong = client.post("/accounts/login/", {"login": alice.email, "password": "nonsense"})
    unknown = client.post("/accounts/login/", {"login": "who@example.com", "password": "x"})
    message = "The email address and/or password you specified are not correct."
    assert message in wrong.content.decode()
    assert message in unknown.content.decode()
    right = client.post("/accounts/login/", {"login": alice.email, "password": "correct horse"})
    assert right.headers["Location"] == "/"


def test_the_policy_against_foreign_content_is_sent_with_every_page(
    browser_of: Any, alice: Any
) -> None:
    policy = browser_of(alice).get("/tasks/").headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy


def test_no_template_holds_an_inline_script_style_or_handler() -> None:
    from django.conf import settings

    for path in (settings.BASE_DIR / "templates").rglob("*.html"):
        text = path.read_text()
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", text), path
        assert "|safe" not in text, path


def test_the_list_says_state_reason_and_reward_in_few_queries(
    browser_of: Any, alice: Any, make_task: Any, django_assert_max_num_queries: Any
) -> None:
    for number in range(20):
        task = make_task(f"task {number}", reason="one place behind")
        for step, reward in enumerate((0.25, 0.75)):
            Step.objects.create(
                task=task, number=step, state="committed", metrics={"reward": reward}
            )
    browser = browser_of(alice)
    browser.get("/tasks/")
    with django_assert_max_num_queries(20):
        text = browser.get("/tasks/").content.decode()
    assert text.count(">one place behind<") == 20
    assert "0.750" in text
    assert "+0.500" in text
    assert "2 of 2 steps" in text


def test_the_list_says_place_and_start_of_what_is_queued_and_has_the_whole_reason_in_a_title(
    browser_of: Any, alice: Any, make_task: Any
) -> None:
    reason = "step 2 of 4: 8 of 8 groups not begun yet: the trainer has enough steps before them"
    make_task("running", state="running", reason=reason)
    make_task("queued", reason="it waits", queue_position=2)
    text = browser_of(alice).get("/tasks/").content.decode()
    assert f'title="{reason}"' in text
    assert "place 2 in the queue" in text
    assert 'title="nobody can say: it waits for the end of your tasks">time not known' in text


def test_a_task_is_paused_resumed_and_cancelled_by_buttons(
    browser_of: Any, alice: Any, task: Any
) -> None:
    move_task(task.pk, "running", from_states=["queued"])
    browser = browser_of(alice)
    for path, state in (("pause", "paused"), ("resume", "running"), ("cancel/now", "cancelled")):
        browser.post(f"/tasks/{task.pk}/{path}/")
        task.refresh_from_db()
        assert task.state == state
    text = browser.post(f"/tasks/{task.pk}/pause/", follow=True).content.decode()
    assert "A task that is cancelled cannot be paused." in text


def test_a_viewer_sees_no_buttons_and_cannot_press_them(
    browser_of: Any, bob: Any, task: Any
) -> None:
    Member.objects.filter(user=bob).update(role="viewer")
    browser = browser_of(bob)
    assert "cancel-dialog" not in browser.get(f"/tasks/{task.pk}/").content.decode()
    assert browser.post(f"/tasks/{task.pk}/cancel/now/").status_code == 403
    task.refresh_from_db()
    assert task.state == "queued"


def test_a_queued_tasks_page_says_its_place_and_reason(
    browser_of: Any, alice: Any, make_task: Any
) -> None:
    task = make_task(queue_position=3, reason="your organisation runs 2 of 2 tasks")
    text = browser_of(alice).get(f"/tasks/{task.pk}/").content.decode()
    assert "place 3 in the queue" in text
    assert "your organisation runs 2 of 2 tasks" in text


def test_a_download_holds_the_adapter_and_not_the_training_state(
    browser_of: Any, alice: Any, task: Any
) -> None:
    for name in ("adapter_config.json", "adapter_model.safetensors", "optimizer.safetensors"):
        artifacts.put(f"versions/page/{name}", name.encode())
    PolicyVersion.objects.create(task=task, number=1, digest="d" * 64, key="versions/page")
    answer = browser_of(alice).get(f"/tasks/{task.pk}/versions/1/adapter.zip")
    packed = zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))
    assert packed.namelist() == ["adapter_config.json", "adapter_model.safetensors"]
    assert browser_of(alice).get(f"/tasks/{task.pk}/versions/2/adapter.zip").status_code == 404


def test_an_upload_with_bad_lines_stores_nothing_and_names_them(
    browser_of: Any, alice: Any
) -> None:
    rows = ['{"question": "1 + 1?", "answer": "2"}', "not json", '{"answer": "3"}']
    answer = browser_of(alice).post("/datasets/", {"name": "sums", "file": _upload(rows)})
    text = answer.content.decode()
    assert answer.status_code == 422
    assert not Dataset.objects.exists()
    assert re.findall(r'<th scope="row" class="number">(\d+)</th>', text) == ["2", "3"]
    assert 'value="sums"' in text


def test_an_uploaded_dataset_shows_its_rows_as_text(browser_of: Any, alice: Any) -> None:
    row = json.dumps({"question": "<b>bold</b>?", "answer": "2"})
    answer = browser_of(alice).post(
        "/datasets/", {"name": "sums", "file": _upload([row])}, follow=True
    )
    assert "&lt;b&gt;bold&lt;/b&gt;?" in answer.content.decode()


def test_the_tenants_page_shows_members_and_use_with_units(
    browser_of: Any, alice: Any, bob: Any, task: Any
) -> None:
    text = browser_of(alice).get("/tenant/").content.decode()
    assert "bob@example.com" in text
    assert "tokens since 0:00 UTC" in text
    assert ">Weight<" in text
    assert "3 gets three times the device-seconds of 1 while both have work" in text
    assert "mallory" not in text


def test_somebody_in_two_tenants_switches_and_nobody_switches_to_a_foreign_one(
    browser_of: Any, alice: Any, umbrella: Any, task: Any, make_task: Any, mallory: Any
) -> None:
    browser = browser_of(alice)
    assert browser.post("/tenant/switch/", {"tenant": umbrella.pk}).status_code == 404
    Member.objects.create(tenant=umbrella, user=alice, role="viewer")
    make_task("theirs", tenant=umbrella)
    browser.post("/tenant/switch/", {"tenant": umbrella.pk})
    text = browser.get("/tasks/").content.decode()
    assert "theirs" in text
    assert ">sums<" not in text


def test_who_is_in_no_tenant_is_told_what_to_do(browser_of: Any, db: None) -> None:
    nobody = User.objects.create_user("nobody", "nobody@example.com", "x")
    browser = browser_of(nobody)
    for path in ("/tasks/", "/datasets/", "/tenant/"):
        assert "nobody@example.com</code>" in browser.get(path).content.decode()
    assert browser.get("/tasks/new/").status_code == 404


def test_an_operator_in_no_tenant_is_shown_the_way_to_all_tenants(
    browser_of: Any, db: None
) -> None:
    operator = User.objects.create_user("op", "op@example.com", "x", is_staff=True)
    browser = browser_of(operator)
    text = browser.get("/tasks/").content.decode()
    assert "Ask an administrator" not in text
    assert 'href="/ops/tenants/"' in text
    assert browser.get("/ops/").headers["Location"] == "/ops/tenants/"


def test_a_fault_of_a_whole_file_has_no_line_number(browser_of: Any, alice: Any) -> None:
    upload = {"name": "array", "file": _upload(["[]"])}
    text = browser_of(alice).post("/datasets/", upload).content.decode()
    assert "No rows found" in text
    assert ">0</th>" not in text


def test_the_upload_form_shows_how_a_row_looks(browser_of: Any, alice: Any) -> None:
    text = browser_of(alice).get("/datasets/").content.decode()
    assert '{"prompt": "What is 2 + 2?", "answer": "4"}' in text


def test_sign_in_offers_a_new_password_by_e_mail_only_where_mail_is_sent(
    client: Client, redis: Any, settings: Any
) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    assert "/accounts/password/reset/" not in client.get("/accounts/login/").content.decode()
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    assert "/accounts/password/reset/" in client.get("/accounts/login/").content.decode()


def test_only_operators_see_and_change_quotas(browser_of: Any, alice: Any, acme: Any) -> None:
    browser = browser_of(alice)
    values = {
        "weight": "2",
        "max_concurrent_tasks": "9",
        "tokens_per_day": "0",
        "max_lora_rank": 8,
        "max_step_tokens": 0,
        "max_stored_mib": 5,
    }
    assert browser.get("/ops/tenants/").status_code == 404
    assert browser.post("/ops/tenants/acme/", values).status_code == 404
    User.objects.filter(pk=alice.pk).update(is_staff=True)
    wrong = browser.post("/ops/tenants/acme/", {**values, "max_lora_rank": 0})
    assert wrong.status_code == 422
    assert Tenant.objects.get(pk=acme.pk).max_concurrent_tasks == 2
    assert browser.post("/ops/tenants/acme/", values).status_code == 302
    acme.refresh_from_db()
    assert (acme.weight, acme.max_concurrent_tasks, acme.max_lora_rank) == (2.0, 9, 8)


def test_a_token_is_shown_once_works_and_is_revoked(
    browser_of: Any, alice: Any, mallory: Any
) -> None:
    browser = browser_of(alice)
    text = browser.post("/account/tokens/", {"name": "ci", "days": "30"}).content.decode()
    token = re.search(r'class="token-once">([^<]+)<', text)
    assert token
    headers = {"Authorization": f"Token {token[1]}"}
    assert Client().get("/api/v1/me", headers=headers).status_code == 200
    assert token[1] not in browser.get("/account/").content.decode()
    label = TokenLabel.objects.get()
    revoke = f"/account/tokens/{label.pk}/revoke/"
    assert browser_of(mallory).post(revoke).status_code == 404
    assert AuthToken.objects.count() == 1
    browser.post(revoke)
    assert Client().get("/api/v1/me", headers=headers).status_code == 401


def test_the_theme_is_the_users_and_the_server_writes_it(browser_of: Any, alice: Any) -> None:
    browser = browser_of(alice)
    assert "data-theme" not in browser.get("/tasks/").content.decode()
    browser.post("/account/theme/", {"theme": "dark"})
    assert '<html lang="en" data-theme="dark">' in browser.get("/tasks/").content.decode()
    browser.post("/account/theme/", {"theme": '"><script>'})
    assert User.objects.get(pk=alice.pk).theme == "dark"


def test_a_stranger_gets_the_same_page_for_a_foreign_and_an_unknown_task(
    browser_of: Any, mallory: Any, task: Any
) -> None:
    browser = browser_of(mallory)
    foreign = browser.get(f"/tasks/{task.pk}/")
    unknown = browser.get("/tasks/7f0c2c6e-5f53-4a4e-9f07-0a52a5c0f6b1/")
    assert foreign.status_code == unknown.status_code == 404
    assert foreign.content == unknown.content
    assert not Task.objects.for_user(mallory).exists()
