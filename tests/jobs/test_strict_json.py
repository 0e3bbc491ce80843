"""JSON of strangers: what refusing it costs. What is refused is tested where it is read."""

from __future__ import annotations

import pytest

from jobs import strict_json


class Counted(str):
    """A key that counts how often keys are compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


def test_finding_a_key_that_comes_twice_takes_one_pass_however_many_keys_there_are() -> None:
    pairs = [(Counted(number), 0) for number in range(1_000)] + [(Counted(999), 1)]
    Counted.compared = 0
    with pytest.raises(strict_json.JSONProblem, match="The key '999' comes twice"):
        strict_json._object(pairs)
    assert Counted.compared < 5 * len(pairs)  # comparing each with each would be half a million
