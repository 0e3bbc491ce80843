"""Numbers that strangers write into links and forms: anything at all, and never a fault of ours."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.django_db

STRANGE = ["1" * 18 + "x", "1" * 9 + "x", "9" * 5_000, "9" * 19, "-1", "1.5", "\0", "", "Ⅷ", "٣"]


@pytest.mark.parametrize("text", STRANGE)
def test_no_text_in_place_of_a_number_breaks_a_page(
    browser_of: Any, alice: Any, make_task: Any, text: str
) -> None:
    browser = browser_of(alice)
    assert browser.post("/tenant/switch/", {"tenant": text}).status_code == 404
    assert browser.get(f"/tasks/{make_task().pk}/", {"step": text}).status_code == 200
    assert browser.get("/tasks/", {"page": text}).status_code == 200


@pytest.mark.parametrize("text", [*STRANGE, "000000001" + "9" * 5_000])
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/api/v1/tasks/{}/snapshot", "buckets"),
        ("/api/v1/tasks/{}/events", "since"),
        ("/api/v1/tasks/{}/steps", "page_size"),
        ("/api/v1/timeline", "minutes"),
    ],
)
def test_no_text_in_place_of_a_number_breaks_the_api(
    browser_of: Any, alice: Any, make_task: Any, path: str, name: str, text: str
) -> None:
    answer = browser_of(alice).get(path.format(make_task().pk), {name: text})
    assert answer.status_code == 400
