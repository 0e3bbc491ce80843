"""Shapes of rows: found, mapped, or told what they lack."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from jobs.services.imports.options import parse_options
from jobs.services.imports.previewing import preview_file

from .samples import all_formats, as_jsonl, take

CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}


def one(row: dict[str, Any], **options: Any) -> tuple[dict[str, Any], list[str]]:
    """The stored row of a file of one row, and the warnings."""
    found = take(as_jsonl([row]), **options)
    assert not found.error, found.error
    return found.rows[0], found.warnings


def test_alpaca_joins_instruction_and_input() -> None:
    row, warnings = one({"instruction": "Add.", "input": "1 and 1", "output": "2", "n": 1})
    assert row == {
        "messages": [{"role": "user", "content": "Add.\n\n1 and 1"}],
        "answer": "2",
        "output": "2",
        "n": 1,
    }
    assert warnings == ["Alpaca format detected: instruction and input make the prompt."]
    row, _ = one({"instruction": "Say hi.", "input": "", "output": "hi"})
    assert row["messages"] == [{"role": "user", "content": "Say hi."}]


def test_sharegpt_is_turned_and_its_last_answer_is_the_answer() -> None:
    turns = [("system", "Be brief."), ("human", "1+1?"), ("gpt", "2")]
    chat = [{"from": who, "value": text} for who, text in turns]
    row, warnings = one({"conversations": chat})
    assert row == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "1+1?"},
        ],
        "answer": "2",
    }
    assert "ShareGPT format" in warnings[0]
    assert "taken off the prompt" in warnings[1]


def test_an_answer_beside_the_chat_stays_and_the_chats_own_is_kept_apart() -> None:
    chat = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "3"}]
    row, _ = one({"messages": chat, "answer": "2"})
    assert (row["answer"], row["completion"], len(row["messages"])) == ("2", "3", 1)


def test_messages_gain_no_keys_and_lose_only_empty_ones() -> None:
    chat = [
        {"role": "user", "content": "Find it", "name": None},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "900 m", "tool_calls": None},
        {"role": "user", "content": [{"type": "text", "text": "How "}, {"text": "high?"}]},
    ]
    row, warnings = one({"messages": chat})
    assert row["messages"] == [
        {"role": "user", "content": "Find it"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "900 m"},
        {"role": "user", "content": "How high?"},
    ]
    assert warnings == ["A list of text parts stored as one text (line 1)."]


def test_keys_that_templates_ignore_are_kept_and_told() -> None:
    row, warnings = one({"messages": [{"role": "user", "content": "a", "weight": 1}]})
    assert row["messages"] == [{"role": "user", "content": "a", "weight": 1}]
    assert "the key 'weight', which most chat templates ignore" in warnings[0]


def test_gsm8k_and_search_questions_keep_their_columns() -> None:
    row, warnings = one({"question": "How many?", "answer": "2 + 2 = 4\n#### 4"})
    assert (row["answer"], warnings) == ("2 + 2 = 4\n#### 4", [])
    row, warnings = one({"question": "Who?", "answers": ["A"], "supporting_titles": ["T"]})
    assert (row["answers"], row["supporting_titles"], warnings) == (["A"], ["T"], [])


def test_an_answer_inside_an_object_is_found_and_said() -> None:
    row, warnings = one(
        {"prompt": [{"role": "user", "content": "x?"}], "reward_model": {"ground_truth": "7"}}
    )
    assert (row["answer"], row["reward_model"]) == ("7", {"ground_truth": "7"})
    assert warnings == ["The answer is taken from 'reward_model.ground_truth'."]


def test_a_mapping_names_columns_and_ways_into_them() -> None:
    row, warnings = one(
        {"a.b": "literal", "a": {"b": "way in", "c": 5}, "messages": "mine", "answer": "old"},
        mapping={"prompt": "a.b", "answer": "a.c"},
    )
    assert row["messages"] == [{"role": "user", "content": "literal"}]
    assert row["answer"] == 5
    assert (row["messages (file)"], row["answer (file)"]) == ("mine", "old")
    assert len(warnings) == 2


def test_case_is_of_no_account_where_columns_are_found() -> None:
    found = take(b"Question,Answer \n1+1?,2\n", "a.csv")
    assert found.rows == [
        {"messages": [{"role": "user", "content": "1+1?"}], "answer": "2", "Answer": "2"}
    ]
    assert found.warnings == [
        "The answer is taken from 'Answer'.",
        "The prompt is taken from 'Question'.",
    ]


def test_another_column_is_the_answer_only_if_it_can_be_one() -> None:
    row, _ = one({"messages": [{"role": "user", "content": "a"}], "reference_answer": {"x": 1}})
    assert set(row) == {"messages", "reference_answer"}
    row, warnings = one({"input": [{"role": "user", "content": "a"}], "ideal": "b"})
    assert (row["answer"], len(warnings)) == ("b", 2)


def test_documents_may_name_their_parts_otherwise() -> None:
    row, warnings = one({"id": "d1", "contents": "text"}, kind="corpus")
    assert row == {"title": "d1", "text": "text"}
    assert warnings == ["The title is taken from 'id'.", "The text is taken from 'contents'."]


def test_a_system_column_comes_first() -> None:
    row, _ = one({"q": "1+1?", "s": "Be brief."}, mapping={"prompt": "q", "system": "s"})
    assert [message["role"] for message in row["messages"]] == ["system", "user"]
    assert set(row) == {"messages"}


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.csv", "rows.parquet"])
@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        ({"answer": "gold answer"}, {"prompt": "question"}),
        ({"prompt": "other"}, {"answer": "ideal"}),
        ({"system": "ideal"}, {"prompt": "question", "answer": "gold answer"}),
        ({"prompt": "other", "system": "ideal"}, {"answer": "gold answer"}),
    ],
)
def test_a_role_that_was_not_chosen_is_found_among_the_columns_left(
    name: str, chosen: dict[str, str], found: dict[str, str]
) -> None:
    answer = "gold answer" if "system" not in chosen else "ground_truth"
    rows = [{"question": "1+1?", "other": "2+2?", answer: "2", "ideal": "4"}]
    found = {role: answer if path == "gold answer" else path for role, path in found.items()}
    data = all_formats(rows)[name]
    paths = {**found, **chosen}
    row = take(data, name, mapping=chosen).rows[0]
    assert row["messages"][-1]["content"] == rows[0][paths["prompt"]]
    assert row["answer"] == rows[0][paths["answer"]]
    assert len(row["messages"]) == (2 if "system" in chosen else 1)


def test_alpacas_other_columns_and_a_documents_other_part_are_found_beside_a_choice() -> None:
    row, _ = one(
        {"instruction": "Add.", "input": "1 and 1", "output": "2", "gold": "two"},
        mapping={"answer": "gold"},
    )
    assert row["messages"] == [{"role": "user", "content": "Add.\n\n1 and 1"}]
    assert row["answer"] == "two"
    row, _ = one({"head": "T", "body": "B"}, kind="corpus", mapping={"title": "head"})
    assert row == {"title": "T", "text": "B"}
    found = take(b"2,1+1?\n", "a.csv", has_header="false", mapping={"answer": "column 1"})
    assert found.rows[0]["messages"] == [{"role": "user", "content": "1+1?"}]
    assert found.rows[0]["answer"] == "2"


@pytest.mark.parametrize(
    "name", ["rows.jsonl", "rows.json", "rows.csv", "rows.tsv", "rows.parquet"]
)
@pytest.mark.parametrize("role", ["prompt", "answer", "system", "input"])
@pytest.mark.parametrize("how", ["stop", "skip"])
def test_a_chosen_column_that_there_is_not_is_told_once(name: str, role: str, how: str) -> None:
    data = all_formats([{"Frage": f"{n}?", "Lösung": "x", "question": "q"} for n in range(3)])[name]
    message = "No column 'Losung'; the columns are Frage, Lösung, question. Choose one of them."
    found = take(data, name, mapping={role: "Losung"}, on_bad_rows=how)
    assert (found.bad, found.error, found.rows) == ({0: message}, message, [])
    seen = preview_file(io.BytesIO(data), name, parse_options({"mapping": {role: "Losung"}}))
    assert (seen["error"], seen["bad_lines"]) == (message, [])
    assert [column["name"] for column in seen["columns"]][:1] == ["Frage"]


def test_a_chosen_column_that_some_rows_lack_is_told_by_line() -> None:
    rows = [{"q": "a"}, {"x": "b", "a": 1}, {"q": "c", "a": 2}]
    found = take(as_jsonl(rows), mapping={"prompt": "q", "answer": "a"})
    assert found.bad == {
        1: "Lacks 'a', the column chosen for the answer.",
        2: "Lacks 'q', the column chosen for the prompt.",
    }


def test_columns_are_counted_over_the_rows_that_are_stored() -> None:
    rows = [{"question": "a", "n": 1}, {"x": 1}, {"question": "b", "n": 2}, {"question": "c"}]
    found = take(as_jsonl(rows), on_bad_rows="skip")
    assert [text for text in found.warnings if text.startswith("Column")] == [
        "Column 'n' is present in 2 of 3 rows."
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"x": 1}, "Needs a prompt ('messages', 'prompt', 'question', …); its columns are 'x'."),
        ({}, "its columns are none."),
        ({"messages": "[{'role': 'user'}]"}, "single quotes are not JSON"),
        ({"question": "a", "answer": ""}, "'answer' is empty."),
        ({f"c{n}": n for n in range(101)}, "Has 101 columns; at most 100 are allowed."),
    ],
)
def test_what_a_row_lacks_is_told(row: dict[str, Any], message: str) -> None:
    assert message in take(as_jsonl([row])).bad[1]


def test_columns_of_several_types_are_told_with_the_first_line_of_each() -> None:
    rows = [{"question": f"q{n}", "x": value} for n, value in enumerate(["a", 1, 2.5, None, ["b"]])]
    assert take(as_jsonl(rows)).warnings == [
        "Column 'x' mixes text (first in line 1), number (first in line 2), list (first in line 5)."
    ]


def test_duplicates_are_counted_after_white_space_and_unicode_form() -> None:
    rows = [("cafe\u0301  au lait", "1"), ("café au lait ", "1"), ("café au lait", "2"), ("x", "1")]
    found = take(as_jsonl([{"question": q, "answer": a} for q, a in rows]))
    assert found.warnings == [
        "1 duplicate: the prompt and answer of a row before (line 2).",
        "1 conflict: the prompt of a row before with another answer (line 3).",
    ]
    assert found.rows[0]["messages"][0]["content"] == "cafe\u0301  au lait"


def test_a_flood_of_different_columns_is_bounded() -> None:
    rows = [{"question": "q", f"c{n}": n} for n in range(400)]
    found = take(as_jsonl(rows), on_bad_rows="skip")
    assert len(found.rows) < 400
    assert "more than 300 different columns" in next(iter(found.bad.values()))
    assert len(json.dumps(found.warnings)) < 50_000
