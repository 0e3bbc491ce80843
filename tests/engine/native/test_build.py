"""Building the kernels, and doing without them."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.native import build


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    build.native.cache_clear()
    yield
    build.native.cache_clear()


linux = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="not written for this system"
)


def test_it_is_built_once() -> None:
    first = build.native()
    if first.kernels is None:
        pytest.skip(first.reason)
    [path] = build.cache_directory().glob("*.so")
    build.native.cache_clear()
    written = path.stat().st_mtime_ns
    assert build.native().kernels is not None
    assert [p.stat().st_mtime_ns for p in build.cache_directory().iterdir()] == [written]


@linux
def test_without_a_compiler_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert build.native().kernels is None and "install gcc" in build.native().reason


@linux
def test_a_failing_compiler_is_named_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "cc"
    broken.write_text('#!/bin/sh\n[ "$1" = --version ] && exit 0\necho no such flag >&2; exit 1\n')
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    found = build.native()
    assert found.kernels is None and "no such flag" in found.reason
    assert not list(build.cache_directory().iterdir())


@linux
def test_a_damaged_library_is_built_again() -> None:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    path = build._built(["gcc"])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])  # to load this would end the process
    assert build.native().kernels is not None and len(path.read_bytes()) == len(whole)


@linux
def test_what_others_may_write_is_not_run() -> None:
    build.cache_directory().mkdir(parents=True)
    build.cache_directory().chmod(0o777)
    found = build.native()
    assert found.kernels is None and "others may write" in found.reason


@linux
@pytest.mark.parametrize(
    "script", ["echo >&2; exit 1", r"printf '\351' >&2; exit 1", 'touch "$out"; exit 0']
)
def test_whatever_a_compiler_does_there_is_a_reason(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "cc"
    start = (
        '#!/bin/sh\n[ "$1" = --version ] && exit 0\nwhile [ "$1" != -o ]; do shift; done; out=$2\n'
    )
    compiler.write_text(start + script + "\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    found = build.native()
    assert found.kernels is None and found.reason.startswith("building failed: ")


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(build.SWITCH, "0")
    assert build.native().kernels is None
