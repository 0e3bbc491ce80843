"""A process that streams a dataset from the Hugging Face hub as JSON lines. Runs as a script.

Arguments: id, configuration ("": the default), split, revision ("": the newest), rows at most.
The last line of stderr tells why nothing came. `datasets` runs no code of the dataset's own, but a
dataset may name files at any address: the process connects to public ones alone.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[3]))
from engine.outbound import parse_allowed
from engine.outbound.connections import refuse_private_connections

CHOSEN_BY_THE_OPERATOR = ("HF_ENDPOINT", "HTTPS_PROXY", "https_proxy")


def main(path: str, name: str, split: str, revision: str, max_rows: int) -> None:
    """Write the rows. Exits with 1 and a sentence if there are none."""
    opened = [item for item in os.environ.get("OUTBOUND_ALLOWED", "").split(",") if item]
    urls = [os.environ[name] for name in CHOSEN_BY_THE_OPERATOR if name in os.environ]
    refuse_private_connections(parse_allowed(opened), urls)
    try:
        from datasets import load_dataset
    except ImportError:
        sys.exit("The hub needs the library datasets: install this package with its extra, hub.")
    try:
        rows = load_dataset(
            path, name or None, split=split, revision=revision or None, streaming=True
        )
        for row in islice(rows, max_rows):
            print(json.dumps(row, default=_plain))
    except Exception as error:
        text = " ".join(str(error).split())[:400]
        sys.exit(f"{path} could not be read from the hub: {type(error).__name__}: {text}")


def _plain(value: Any) -> Any:
    """The JSON form of what has none."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


if __name__ == "__main__":
    hub_id, config, wanted_split, at, rows_at_most = sys.argv[1:]
    main(hub_id, config, wanted_split, at, int(rows_at_most))
