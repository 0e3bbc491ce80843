"""Spans are the times in which something was really there."""

from jobs.services.spans import merged


def test_overlapping_and_touching_pieces_become_one() -> None:
    assert merged([(1.0, 2.0, 5), (1.5, 3.0, 7), (3.05, 4.0, 1)]) == [(1.0, 4.0, 13)]


def test_a_gap_is_kept_as_a_gap() -> None:
    assert merged([(5.0, 6.0, 2), (1.0, 2.0, 1)]) == [(1.0, 2.0, 1), (5.0, 6.0, 2)]


def test_a_piece_inside_another_does_not_shorten_it() -> None:
    assert merged([(1.0, 9.0, 1), (2.0, 3.0, 1)]) == [(1.0, 9.0, 2)]
