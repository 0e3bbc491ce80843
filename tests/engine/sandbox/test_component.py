"""Building the component once, and loading nothing that others could have written."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import wasmtime
from wasmtime import component as components

from engine.built_files import cache_directory
from engine.errors import GraderError
from engine.sandbox import component
from engine.sandbox.child.compile import compile_component
from engine.sandbox.child.guests import engine


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """An empty cache, and builds that write a word instead; the commands of both steps."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    commands: list[list[str]] = []

    def pretend(command: list[str], folder: str) -> None:
        commands.append(command)
        (Path(folder) / Path(command[-1]).name).write_text("built")

    monkeypatch.setattr(component, "_run", pretend)
    return commands


def test_the_component_asks_for_nothing_outside_itself() -> None:
    made_for = engine()
    path = str(component.compiled_component())
    found = components.Component.deserialize_file(made_for, path)
    assert list(found.type.imports(made_for)) == []


def test_a_component_that_asks_for_something_is_refused(tmp_path: Path) -> None:
    asking = tmp_path / "asking.wasm"
    asking.write_bytes(wasmtime.wat2wasm('(component (import "clock" (func)))'))
    with pytest.raises(RuntimeError, match="asks for clock"):
        compile_component(asking, tmp_path / "compiled")
    assert not (tmp_path / "compiled").exists()


def test_it_is_built_once_and_nothing_else_is_left(elsewhere: list[list[str]]) -> None:
    path = component.compiled_component()
    assert component.compiled_component() == path and path.read_text() == "built"
    assert len(elsewhere) == 2
    names = sorted(file.name for file in cache_directory("sandbox").iterdir())
    assert names == [path.name, path.with_suffix(".sha256").name, "lock"]


def test_a_damaged_one_is_built_again(elsewhere: list[list[str]]) -> None:
    component.compiled_component().write_text("half of i")
    assert component.compiled_component().read_text() == "built"
    assert len(elsewhere) == 4


def test_other_sources_versions_or_settings_are_another_component(
    elsewhere: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = {component.compiled_component()}
    monkeypatch.setattr(component, "CONFIG", "another")
    paths.add(component.compiled_component())
    monkeypatch.setattr(component, "processor", lambda: "another")
    paths.add(component.compiled_component())
    monkeypatch.setattr(component.importlib.metadata, "version", lambda name: "99")
    paths.add(component.compiled_component())
    (tmp_path / "guest").mkdir()
    (tmp_path / "guest" / "guest.wit").write_text("another")
    monkeypatch.setattr(component, "GUEST", tmp_path / "guest")
    paths.add(component.compiled_component())
    assert len(paths) == 5


@pytest.mark.parametrize("which", ["directory", "file", "digest"])
def test_what_others_may_write_is_not_loaded(elsewhere: list[list[str]], which: str) -> None:
    path = component.compiled_component()
    digest = path.with_suffix(".sha256")
    {"directory": path.parent, "file": path, "digest": digest}[which].chmod(0o777)
    with pytest.raises(GraderError, match="others may write to it"):
        component.compiled_component()


def test_where_it_cannot_be_built_one_sentence_says_so(
    elsewhere: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(command: list[str], folder: str) -> None:
        raise subprocess.CalledProcessError(1, command, stderr="…\nno such platform\n")

    monkeypatch.setattr(component, "_run", failing)
    with pytest.raises(GraderError) as caught:
        component.compiled_component()
    assert str(caught.value) == (
        "python_grader_server_error: the sandbox for Python cannot be built on this machine"
        " (no such platform); its operator finds more in the log"
    )
    assert [file.name for file in cache_directory("sandbox").iterdir()] == ["lock"]
