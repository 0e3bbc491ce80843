"""Whatever befalls a file's bytes, an import stores good rows or says what is wrong, and where."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import DatasetError
from jobs.services.imports.importing import Part, import_rows
from jobs.services.imports.options import parse_options
from jobs.services.imports.previewing import preview_file

from .samples import ROWS, all_formats

pytestmark = pytest.mark.slow

FILES = all_formats([*ROWS, {"question": 'Quotes " and , and \n and é?', "answer": "ü\t1"}])
TEXT = [name for name in FILES if not name.endswith(".parquet")]
PIECES = (
    *(b'"', b"'", b",", b"\n", b"\r", b"\r\n", b"\t", b"[", b"]", b"{", b"}", b"\\", b"\\u", b"\0"),
    *(b"\xff", b"\xfe", b"\xef\xbb\xbf", b"\x1f\x8b", b"PAR1", b"NaN", b"1e999", b"\\ud800"),
    *(b"[" * 100, b'{"a":' * 100, b"\xc3", b"null", b"-", b'"question"', b" " * 50),
)
OPTIONS = settings(deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def damage(draw: Any, name: str) -> bytes:
    """The file with a few bytes flipped, cut out or put in."""
    data = bytearray(FILES[name])
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["flip", "cut", "end", "insert", "repeat"])):
            case "flip" if place < len(data):
                data[place] ^= draw(st.integers(1, 255))
            case "cut":
                del data[place : place + draw(st.integers(1, 40))]
            case "end":
                del data[place:]
            case "insert":
                data[place:place] = draw(st.sampled_from(PIECES))
            case "repeat":
                data[place:place] = data[max(0, place - draw(st.integers(1, 60))) : place]
    return bytes(data)


def check(data: bytes, name: str, how: str) -> None:
    """Import and preview it, and look at what is told and stored."""
    parts = Part(io.BytesIO()), Part(io.BytesIO())
    try:
        found = import_rows(
            io.BytesIO(data), name, parse_options({"on_bad_rows": how}), parts, max_bytes=2**24
        )
    except DatasetError as error:
        assert error.lines and all(message and line >= 0 for line, message in error.lines)
        assert str(error) and len(str(error)) < 1_000
    else:
        stored = parts[0].file.getvalue().decode()  # type: ignore[attr-defined]
        rows = [json.loads(line) for line in stored.removesuffix("\n").split("\n")]
        assert len(rows) == parts[0].num_rows > 0
        assert all(row["messages"][-1]["role"] in ("user", "tool") for row in rows)
        assert how == "skip" or not found.num_skipped
    head = preview_file(io.BytesIO(data), name, parse_options({}), cut=len(data) % 2 == 0)
    json.dumps(head, allow_nan=False).encode()


@pytest.mark.parametrize("name", TEXT)
@pytest.mark.parametrize("how", ["stop", "skip"])
def test_damaged_text_is_told_and_never_a_fault(name: str, how: str) -> None:
    @settings(OPTIONS, max_examples=60)
    @given(data=damage(name))
    def run(data: bytes) -> None:
        check(data, name, how)

    run()


def test_damaged_parquet_is_told_and_never_a_fault() -> None:
    rng = random.Random(7)
    for _ in range(12):
        data = bytearray(FILES["rows.parquet"])
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(4, len(data))] ^= rng.randint(1, 255)
        check(
            bytes(data[: rng.choice([len(data), len(data), rng.randrange(4, len(data))])]),
            "rows.parquet",
            "skip",
        )


@settings(OPTIONS, max_examples=300)
@given(data=st.binary(max_size=300), name=st.sampled_from([*TEXT, "", "x.txt", "x"]))
def test_any_bytes_are_told_and_never_a_fault(data: bytes, name: str) -> None:
    check(data, name, "skip")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(OPTIONS, max_examples=300)
@given(
    rows=st.lists(
        st.dictionaries(
            st.sampled_from(
                ["messages", "prompt", "question", "answer", "conversations", "instruction", "x"]
            )
            | st.text(max_size=5),
            VALUES,
            max_size=4,
        ),
        max_size=5,
    )
)
def test_rows_of_any_shape_are_stored_or_told(rows: list[dict[str, Any]]) -> None:
    check("\n".join(json.dumps(row) for row in rows).encode(), "rows.jsonl", "skip")
    check(json.dumps(rows).encode(), "rows.json", "stop")


MESSAGES = st.lists(
    st.dictionaries(
        st.sampled_from(["role", "content", "from", "value", "tool_calls", "tool_call_id", "name"]),
        st.sampled_from(
            [
                "user",
                "assistant",
                "system",
                "tool",
                "human",
                "gpt",
                "",
                None,
                3,
                [],
                [{}],
                [{"id": "x"}],
            ]
        )
        | VALUES,
        max_size=4,
    )
    | VALUES,
    max_size=4,
)


@settings(OPTIONS, max_examples=300)
@given(chats=st.lists(MESSAGES, min_size=1, max_size=4))
def test_chats_of_any_shape_are_stored_or_told(chats: list[Any]) -> None:
    rows = [{"messages": chat, "answer": "1"} for chat in chats]
    check("\n".join(json.dumps(row) for row in rows).encode(), "rows.jsonl", "skip")
