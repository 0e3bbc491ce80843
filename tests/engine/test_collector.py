"""The garbage collector is away for a moment, and only for it."""

from __future__ import annotations

import gc

import pytest

from engine import collector


def test_nothing_is_collected_meanwhile() -> None:
    with collector.held_off():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_comes_back_after_an_error() -> None:
    with pytest.raises(KeyError), collector.held_off():
        raise KeyError
    assert gc.isenabled()


def test_one_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with collector.held_off():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
