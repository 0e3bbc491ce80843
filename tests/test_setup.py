"""tools/setup.py: what it says when something is missing, and that it is instant when done."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "tools" / "setup.py"
Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def setup() -> Any:
    spec = importlib.util.spec_from_file_location("marlaas_setup", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def roomy(setup: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup.shutil, "disk_usage", lambda path: Usage(9e11, 0, 9e11))


class ScriptedPip:
    """Says what it was asked for, and what it finds."""

    def __init__(self, finds_cpu_build: bool) -> None:
        self.finds_cpu_build = finds_cpu_build
        self.installed: list[tuple[str, ...]] = []

    def can_install(self, *arguments: str) -> bool:
        return self.finds_cpu_build

    def install(self, *arguments: str) -> None:
        self.installed.append(arguments)


def stopped(setup: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> str:
    """Run it to its expected failure; the last line it printed."""
    assert setup.main(["--venv", str(tmp_path / "venv")]) == 1
    error = capsys.readouterr().err
    assert "Traceback" not in error
    return error.strip().splitlines()[-1]


def test_an_old_python_is_refused_with_its_version(
    setup: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(setup, "OLDEST_PYTHON", (9, 0))
    said = stopped(setup, capsys, tmp_path)
    assert sys.version.split()[0] in said
    assert "make run PYTHON=" in said


def test_a_full_disk_is_found_before_anything_is_installed(
    setup: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(setup.shutil, "disk_usage", lambda path: Usage(9e9, 8e9, 1.5e9))
    monkeypatch.setattr(setup, "find_accelerator", lambda: "cpu")
    assert "only 1.5 GB are free" in (said := stopped(setup, capsys, tmp_path))
    assert "6 GB are needed" in said
    assert list(tmp_path.iterdir()) == []


def test_a_directory_of_someone_else_is_named(
    setup: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path, roomy: None
) -> None:
    monkeypatch.setattr(setup.os, "access", lambda path, mode: False)
    assert f"{tmp_path} cannot be written to" in stopped(setup, capsys, tmp_path)


def test_a_python_without_venv_says_what_to_install(
    setup: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path, roomy: None
) -> None:
    monkeypatch.setattr(setup.importlib.util, "find_spec", lambda name: None)
    assert "apt install python3-venv" in stopped(setup, capsys, tmp_path)


def test_ctrl_c_says_how_to_go_on(
    setup: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(setup, "check_machine", interrupt)
    assert setup.main(["--venv", str(tmp_path / "venv")]) == 130
    assert "run the same command again" in capsys.readouterr().err


# What pip 23 to 26 really print in each case.
PIP_SAYS = {
    "the disk is full": "ERROR: Could not install packages due to an OSError: [Errno 28] No space"
    " left on device",
    "a download was interrupted": "ERROR: Exception:\npip._vendor.urllib3.exceptions.ProtocolError:"
    " ('Connection broken: IncompleteRead(20 bytes read)')",
    "would need a compiler": "  error: command 'gcc' failed: No such file or directory\n"
    "ERROR: Failed building wheel for hiredis",
    "cannot be written to": "ERROR: Could not install packages due to an OSError: [Errno 13]"
    " Permission denied: '/opt'",
    "no ready-made tokenizers==0.23.3": "ERROR: Could not find a version that satisfies the"
    " requirement tokenizers==0.23.3 (from versions: none)\n"
    "ERROR: No matching distribution found for tokenizers==0.23.3",
}


@pytest.mark.parametrize("sentence", PIP_SAYS)
def test_pips_complaint_becomes_one_sentence(setup: Any, sentence: str) -> None:
    said = setup.explain(PIP_SAYS[sentence].splitlines(), "marlaas")
    assert sentence in said
    assert "\n" not in said


def test_a_lost_network_is_not_taken_for_a_missing_package(setup: Any) -> None:
    complaints = [
        "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError'",
        "ERROR: Could not find a version that satisfies the requirement torch==2.13.0",
        "ERROR: No matching distribution found for torch==2.13.0",
    ]
    assert "a download was interrupted" in setup.explain(complaints, "torch")


def test_an_unknown_complaint_is_passed_on(setup: Any) -> None:
    assert setup.explain(["ERROR: the moon is full", ""], "torch==2.13.0") == (
        "torch==2.13.0 could not be installed: ERROR: the moon is full"
    )


def test_a_failing_pip_ends_in_its_sentence(setup: Any, tmp_path: Path, roomy: None) -> None:
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "python"
    fake.write_text("#!/bin/sh\necho 'OSError: [Errno 28] No space left on device' >&2\nexit 1\n")
    fake.chmod(0o755)
    with pytest.raises(setup.SetupError, match="the disk is full"):
        setup.Pip(tmp_path).install("anything")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every build is for the CPU")
def test_without_accelerator_the_cpu_build_is_asked_for_by_name(
    setup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "is_reachable", lambda url: True)
    pip = ScriptedPip(finds_cpu_build=True)
    setup.install_torch(pip, "cpu")
    assert pip.installed == [("--extra-index-url", setup.CPU_INDEX, "torch==2.13.0+cpu")]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every build is for the CPU")
def test_gigabytes_of_cuda_are_announced_where_no_cpu_build_is_found(
    setup: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(setup, "is_reachable", lambda url: False)
    pip = ScriptedPip(finds_cpu_build=False)
    setup.install_torch(pip, "cpu")
    assert pip.installed == [("torch==2.13.0",)]
    assert "may bring CUDA libraries of several gigabytes" in capsys.readouterr().out


def test_a_gpu_gets_the_default_build(setup: Any) -> None:
    pip = ScriptedPip(finds_cpu_build=True)
    setup.install_torch(pip, "cuda")
    assert pip.installed == [("torch==2.13.0",)]


def test_accelerators_are_found_by_their_tools(setup: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup.glob, "glob", lambda pattern: [])
    for tool, accelerator in (("npu-smi", "npu"), ("nvidia-smi", "cuda"), ("none", "cpu")):
        monkeypatch.setattr(
            setup.shutil, "which", lambda name, tool=tool: name if name == tool else None
        )
        assert setup.find_accelerator() == accelerator


@pytest.fixture
def recorded(setup: Any, monkeypatch: pytest.MonkeyPatch, roomy: None) -> list[tuple[str, ...]]:
    """What pip is asked for, in a set-up whose pip and venv do nothing."""
    asked: list[tuple[str, ...]] = []

    def make_venv(venv: Path) -> None:
        (venv / "bin").mkdir(parents=True, exist_ok=True)
        (venv / "bin" / "python").touch()
        (venv / "pyvenv.cfg").write_text("version = 3.11.7\n")

    monkeypatch.setattr(setup, "make_venv", make_venv)
    monkeypatch.setattr(setup, "is_reachable", lambda url: False)
    monkeypatch.setattr(setup, "find_accelerator", lambda: "cpu")
    monkeypatch.setattr(setup.Pip, "install", lambda self, *arguments: asked.append(arguments))
    monkeypatch.setattr(setup.Pip, "can_install", lambda self, *arguments: True)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    return asked


def test_a_second_run_installs_nothing(setup: Any, recorded: list[Any], tmp_path: Path) -> None:
    setup.set_up(tmp_path / "venv", dev=False)
    num_asked = len(recorded)
    assert num_asked > 0
    setup.set_up(tmp_path / "venv", dev=False)
    assert len(recorded) == num_asked


def test_what_the_tests_need_is_added_and_then_kept(
    setup: Any, recorded: list[Any], tmp_path: Path
) -> None:
    setup.set_up(tmp_path / "venv", dev=False)
    assert ("--editable", ".") in recorded
    setup.set_up(tmp_path / "venv", dev=True)
    assert ("--editable", ".[dev]") in recorded
    num_asked = len(recorded)
    setup.set_up(tmp_path / "venv", dev=False)
    assert len(recorded) == num_asked


def test_another_python_or_an_interruption_installs_again(
    setup: Any, recorded: list[Any], tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    setup.set_up(venv, dev=False)
    for change in (
        lambda: (venv / "pyvenv.cfg").write_text("version = 3.13.0\n"),
        lambda: (venv / "marlaas-setup.json").unlink(),
        lambda: shutil.rmtree(venv),
    ):
        change()
        recorded.clear()
        setup.set_up(venv, dev=False)
        assert recorded


def test_without_a_compiler_all_but_reasoning_gym_is_installed(setup: Any, capsys: Any) -> None:
    class Pip(ScriptedPip):
        python = "/venv/bin/python"

        def install(self, *arguments: str) -> None:
            super().install(*arguments)
            raise setup.SetupError("pycosat would need a compiler.")

    pip = Pip(finds_cpu_build=True)
    setup.install_reasoning_gym(pip)
    assert pip.installed == [("--no-binary=cellpylib,pycosat,zss", "--editable", ".[reasoning]")]
    said = capsys.readouterr().out
    assert "pycosat would need a compiler" in said
    assert "/venv/bin/python -m pip install -e '.[reasoning]'" in said
