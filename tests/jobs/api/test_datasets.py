"""Uploads by the API: options, versions, previews, lengths, overlaps, and large files."""

from __future__ import annotations

import io
import json
import os
import uuid
from pathlib import Path
from typing import Any

import pytest
from rest_framework.test import APIClient

from jobs.models import Dataset, DatasetImport
from jobs.services import dataset_imports
from tests.jobs.services.imports.samples import as_parquet
from tests.tiny import build_tiny_model

pytestmark = pytest.mark.django_db

ROWS = b"question,answer\n1+1?,2\n2+2?,4\n"


def form(data: bytes, file_name: str = "rows.csv", **fields: Any) -> dict[str, Any]:
    """A multipart form with a file."""
    file = io.BytesIO(data)
    file.name = file_name
    return {"file": file, **fields}


def upload(client: APIClient, data: bytes, file_name: str = "rows.csv", **fields: Any) -> Any:
    fields = {"name": "rows", **fields}
    return client.post("/api/v1/datasets", form(data, file_name, **fields), format="multipart")


def test_an_upload_is_mapped_as_it_says(api: APIClient) -> None:
    response = upload(
        api,
        b'{"q": {"text": "1+1?"}, "gold": 2}\nnonsense\n',
        "rows.jsonl",
        mapping=json.dumps({"prompt": "q.text", "answer": "gold"}),
        on_bad_rows="skip",
    )
    assert response.status_code == 201
    made = response.json()
    assert made["mapping"] == {"prompt": "q.text", "answer": "gold"}
    assert made["skipped"] == [[2, "Not JSON at character 1: Expecting value."]]
    assert (made["format"], made["encoding"], made["kind"]) == ("jsonl", "utf-8", "prompts")
    assert made["warnings"] == ["1 row was left out (line 2)."]
    rows = api.get(f"/api/v1/datasets/{made['id']}/preview").json()["rows"]
    assert rows == [
        {
            "messages": [{"role": "user", "content": "1+1?"}],
            "answer": 2,
            "q": {"text": "1+1?"},
            "gold": 2,
        }
    ]


def test_the_same_content_is_there_and_another_is_the_next_version(api: APIClient) -> None:
    first, same, second = (upload(api, data) for data in (ROWS, ROWS, ROWS + b"3+3?,6\n"))
    assert [answer.status_code for answer in (first, same, second)] == [201, 200, 201]
    assert same.json() == first.json()
    assert second.json()["version"] == 2
    listed = api.get("/api/v1/datasets").json()["results"]
    assert [one["id"] for one in listed] == [second.json()["id"]]
    history = api.get("/api/v1/datasets?name=rows").json()["results"]
    assert [one["version"] for one in history] == [2, 1]
    assert api.get("/api/v1/datasets?name=%00").json()["results"] == []


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"kind": "images"}, {"kind"}),
        ({"encoding": "klingon"}, {"encoding"}),
        ({"on_bad_rows": "mend", "format": "xlsx"}, {"on_bad_rows", "format"}),
        ({"eval_fraction": "0.9"}, {"eval_fraction"}),
        ({"eval_fraction": "nan"}, {"eval_fraction"}),
        ({"kind": "corpus", "eval_fraction": "0.1"}, {"eval_fraction"}),
        ({"mapping": "{"}, {"mapping"}),
        ({"mapping": '["question"]'}, {"mapping"}),
        ({"mapping": '{"prompts": "question"}'}, {"mapping"}),
        ({"mapping": '{"prompt": 7}'}, {"mapping"}),
        ({"mapping": '{"prompt": "' + "x" * 201 + '"}'}, {"mapping"}),
        ({"has_header": "perhaps"}, {"has_header"}),
    ],
)
def test_wrong_choices_are_told_by_field(
    api: APIClient, fields: dict[str, Any], wrong: set[str]
) -> None:
    response = upload(api, ROWS, **fields)
    assert (response.status_code, set(response.json()["fields"])) == (400, wrong)
    assert not Dataset.objects.exists()


@pytest.mark.parametrize(
    "name", ["../x.csv", "a/b.csv", "CON.csv", "x" * 300 + ".csv", "имя (1).csv", "\u202egnp.csv"]
)
def test_a_files_name_is_shown_and_never_a_path(api: APIClient, name: str) -> None:
    response = upload(api, ROWS, name)
    assert response.status_code == 201
    shown = response.json()["file_name"]
    assert len(shown) <= 255
    assert Path(name).name[-40:-4].strip("\u202e") in shown or len(name) > 255
    assert not Path("x.csv").exists() and not Path("../x.csv").exists()


def test_line_ends_in_a_parts_header_smuggle_nothing(api: APIClient) -> None:
    body = (
        b'--b\r\nContent-Disposition: form-data; name="name"\r\n\r\nrows\r\n--b\r\n'
        b'Content-Disposition: form-data; name="file"; filename="a%0d%0ab\r\n.csv"\r\n\r\n'
        + ROWS
        + b"\r\n--b--\r\n"
    )
    response = api.generic(
        "POST", "/api/v1/datasets", body, content_type="multipart/form-data; boundary=b"
    )
    assert response.status_code in (201, 400)
    assert all("\r" not in one.file_name for one in Dataset.objects.all())


def preview(client: APIClient, data: bytes, file_name: str = "rows.csv", **fields: Any) -> Any:
    url = "/api/v1/datasets/preview"
    return client.post(url, form(data, file_name, **fields), format="multipart")


def test_a_preview_tells_everything_and_stores_nothing(api: APIClient) -> None:
    data = b'question,gold,level\n1+1?,2,a\n"2+2?",4\n' + "café?,5,b\n".encode()
    found = preview(api, data).json()
    assert (found["format"], found["encoding"], found["error"]) == ("csv", "utf-8", "")
    assert found["mapping"] == {"prompt": "question", "answer": "gold"}
    assert found["columns"][0] == {"name": "question", "num_rows": 2, "types": {"text": 2}}
    assert found["rows"][1]["messages"] == [{"role": "user", "content": "café?"}]
    assert found["bad_lines"] == [{"line": 3, "message": "Has 2 cells; the header has 3 columns."}]
    again = preview(api, data, mapping='{"prompt": "level"}').json()
    assert again["mapping"] == {"prompt": "level", "answer": "gold"}
    assert again["rows"][0]["messages"] == [{"role": "user", "content": "a"}]
    assert not Dataset.objects.exists()


def test_a_head_is_previewed_without_its_cut_row(api: APIClient) -> None:
    found = preview(api, ROWS + b"3+3", is_head="true").json()
    assert (found["num_rows"], found["bad_lines"], found["is_head"]) == (2, [], True)
    assert preview(api, ROWS + b"3+3").json()["num_bad_lines"] == 1


def test_a_large_parquet_files_columns_are_told_by_its_ends(api: APIClient) -> None:
    rows = [{"question": f"{n}?", "gold": n, "x": os.urandom(300).hex()} for n in range(2_000)]
    data = as_parquet(rows, use_dictionary=False)
    ends = {"tail": io.BytesIO(data[-10_000:]), "size": str(len(data))}
    found = preview(api, data[:10_000], "rows.parquet", **ends).json()
    assert (found["error"], found["rows"]) == ("", [])
    assert [(one["name"], one["types"]) for one in found["columns"]] == [
        ("question", {"string": 1}),
        ("gold", {"int64": 1}),
        ("x", {"string": 1}),
    ]
    assert found["mapping"] == {"prompt": "question", "answer": "gold"}
    for size in ("", "x", "-1", str(2**60), "9" * 40):
        ends = {"tail": io.BytesIO(data[-10_000:]), "size": size}
        assert preview(api, data[:10_000], "rows.parquet", **ends).status_code == 400


def test_a_file_that_cannot_be_read_is_told_in_its_preview(api: APIClient) -> None:
    found = preview(api, b"PK\x03\x04rest", "rows.zip").json()
    assert "This is a zip archive" in found["error"]
    found = preview(api, b'[{"question": "a"}, {"question": "b"', "rows.json").json()
    assert "no end before the file's" in found["error"]
    assert len(found["rows"]) == 1
    assert preview(api, b"", "x").json()["error"].startswith("No rows found")


def test_lengths_are_in_a_base_models_tokens(
    api: APIClient, base_model: Any, tmp_path: Path
) -> None:
    base_model.path = str(build_tiny_model(tmp_path / "tiny"))
    base_model.save()
    rows = "".join(json.dumps({"prompt": "word " * n}) + "\n" for n in range(1, 101))
    made = upload(api, rows.encode(), "rows.jsonl").json()
    url = f"/api/v1/datasets/{made['id']}/lengths"
    found = api.get(f"{url}?base_model=tiny&limit=40").json()
    lengths = _expected_lengths(base_model.path)
    assert found["num_rows"] == 100
    assert (found["min"], found["max"]) == (lengths[0], lengths[-1])
    assert (found["median"], found["p95"]) == (lengths[49], lengths[94])
    assert found["num_over"] == sum(length > 40 for length in lengths) > 0
    assert api.get(f"{url}?base_model=none").status_code == 400
    assert api.get(url).status_code == 400


def _expected_lengths(path: str) -> list[int]:
    from engine.models.chat import ChatTokenizer

    tokenizer = ChatTokenizer(path)
    chats = ([{"role": "user", "content": "word " * n}] for n in range(1, 101))
    return sorted(len(tokenizer.encode_chat(chat)) for chat in chats)


def test_an_overlap_is_told_between_ones_own_datasets_only(
    api: APIClient, client_of: Any, mallory: Any
) -> None:
    train = upload(api, ROWS, name="train").json()["id"]
    test = upload(api, b"question,answer\n 2+2?,4\n5+5?,10\n", name="test").json()["id"]
    url = f"/api/v1/datasets/{train}/overlap"
    assert api.get(f"{url}?other={test}").json() == {"count": 1, "examples": ["user: 2+2?"]}
    foreign = upload(client_of(mallory), ROWS).json()["id"]
    for other in (foreign, uuid.uuid4(), "x", "", "%00"):
        response = api.get(f"{url}?other={other}")
        assert (response.status_code, set(response.json()["fields"])) == (400, {"other"})


def test_a_large_file_is_read_after_the_answer(
    api: APIClient, monkeypatch: pytest.MonkeyPatch, client_of: Any, mallory: Any
) -> None:
    monkeypatch.setattr(dataset_imports, "IN_REQUEST_BYTES", 10)
    response = upload(api, ROWS)
    assert response.status_code == 202
    row = response.json()
    assert (row["state"], row["num_bytes"], row["dataset"]) == ("importing", len(ROWS), None)
    url = f"/api/v1/dataset-imports/{row['id']}"
    assert client_of(mallory).get(url).status_code == 404
    dataset_imports.run_import(row["id"])
    done = api.get(url).json()
    assert (done["state"], done["num_rows"], done["bytes_read"]) == ("ready", 2, len(ROWS))
    assert api.get(f"/api/v1/datasets/{done['dataset']}").json()["file_name"] == "rows.csv"
    assert api.get("/api/v1/dataset-imports").json()["results"] == [done]
    assert DatasetImport.objects.get().key == ""


def test_generated_rows_become_a_dataset(api: APIClient, client_of: Any, vera: Any) -> None:
    pytest.importorskip("reasoning_gym", reason="the extra reasoning is not installed")
    source = {"kind": "reasoning_gym", "task": "leg_counting", "seed": 3, "size": 6}
    body = {"name": "legs", "source": source, "options": {"eval_fraction": 0.5}}
    assert client_of(vera).post("/api/v1/dataset-imports", body).status_code == 403
    response = api.post("/api/v1/dataset-imports", body)
    assert response.status_code == 202
    dataset_imports.run_import(response.json()["id"])
    done = api.get(f"/api/v1/dataset-imports/{response.json()['id']}").json()
    assert (done["state"], done["error"]) == ("ready", "")
    made = api.get(f"/api/v1/datasets/{done['dataset']}").json()
    assert made["file_name"] == "reasoning-gym leg_counting, seed 3, 6 rows"
    assert set(made["columns"]) == {"messages", "answer", "metadata", "reasoning_gym"}
    for wrong in ({"source": []}, {"source": {}}, {"options": 3, "source": source}, {"x": 1}):
        assert api.post("/api/v1/dataset-imports", {"name": "x", **wrong}).status_code == 400
