"""A packed upload goes through the real stack: kept, read by a chore, and there to train on."""

from __future__ import annotations

import gzip
import hashlib
import json
import time
from typing import Any

import pytest

from benchmarks.client import Client

pytestmark = [pytest.mark.flow, pytest.mark.slow]

ROWS = 30_000


def _noise(n: int) -> str:
    """Text that does not shrink much."""
    return hashlib.sha256(b"%d" % n).hexdigest()


def ended(client: Client, key: str) -> dict[str, Any]:
    """The import, once it is over. Raises: TimeoutError."""
    for _ in range(240):
        row = client.get(f"dataset-imports/{key}")
        if row["state"] != "importing":
            return row
        time.sleep(0.5)
    raise TimeoutError(f"{key} is still importing: {row}")


def test_a_packed_file_is_read_by_a_chore_of_the_stack(make_owner: Any) -> None:
    client = make_owner("importers").client
    lines = (json.dumps({"question": f"{_noise(n)}?", "answer": n}) for n in range(ROWS))
    data = gzip.compress("\n".join([*lines, "bad"]).encode())
    first = client.upload("datasets", {"name": "sums"}, ("sums.jsonl.gz", data))
    failed = ended(client, first["id"])
    assert (failed["state"], failed["lines"][0][0]) == ("failed", ROWS + 1)
    fields = {"name": "sums", "on_bad_rows": "skip"}
    second = client.upload("datasets", fields, ("sums.jsonl.gz", data))
    done = ended(client, second["id"])
    assert (done["state"], done["num_rows"], done["error"]) == ("ready", ROWS, "")
    made = client.get(f"datasets/{done['dataset']}")
    assert (made["num_rows"], made["num_skipped"], made["format"]) == (ROWS, 1, "jsonl.gz")
    last = client.get(f"datasets/{done['dataset']}/preview?start={ROWS - 1}")["rows"]
    assert [row["answer"] for row in last] == [ROWS - 1]


def test_rows_are_generated_by_a_chore_of_the_stack(make_owner: Any) -> None:
    client = make_owner("generators").client
    pytest.importorskip("reasoning_gym", reason="the extra reasoning is not installed")
    source = {"kind": "reasoning_gym", "task": "leg_counting", "seed": 1, "size": 50}
    begun = client.post("dataset-imports", {"name": "legs", "source": source})
    done = ended(client, begun["id"])
    assert (done["state"], done["num_rows"], done["error"]) == ("ready", 50, "")
