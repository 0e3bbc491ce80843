"""What a sealed process cannot do, tried by a process that has no sandbox around it at all."""

from __future__ import annotations

import json
import shutil
import signal
import struct
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.sandbox.component import HERE, child_command, compiled_component

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the seal is Linux's")

SEALED = """
import ctypes, mmap, os, platform, signal, socket, sys
sys.path[:0] = [{here!r}, {site!r}]
from child import seal
{before}
layers = {{layer["name"]: layer["holds"] for layer in seal.seal(512, {strict})}}
{act}
os.write(1, repr(layers).encode())
os._exit(0)
"""


def sealed(act: str, before: str = "", strict: bool = False) -> subprocess.CompletedProcess[bytes]:
    """A process that seals itself and then acts."""
    site = sysconfig.get_path("purelib")
    code = SEALED.format(here=str(HERE), site=site, before=before, act=act, strict=strict)
    return subprocess.run([sys.executable, "-I", "-S", "-B", "-c", code], capture_output=True)


def test_all_layers_hold_on_this_kernel_and_the_process_can_still_answer() -> None:
    done = sealed("")
    assert done.returncode == 0
    layers = "{'rlimits': True, 'no_new_privs': True, 'landlock': True, 'seccomp': True}"
    assert done.stdout.decode() == layers


@pytest.mark.parametrize(
    "act",
    [
        "open('/etc/passwd')",
        "os.stat('/')",
        "socket.socket()",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
        "socket.socket(socket.AF_UNIX)",
        "os.fork()",
        "os.execv('/bin/true', ['true'])",
        "os.kill(os.getppid(), 0)",
        "os.kill(os.getpid(), 9)",
        "ctypes.CDLL(None).ptrace(0, 0, 0, 0)",
        "os.setuid(0)",
        "os.memfd_create('x')",
        "os.dup(0)",
        "os.pipe()",
    ],
)
def test_a_forbidden_call_ends_the_process(act: str) -> None:
    assert sealed(act).returncode == -signal.SIGSYS


@pytest.mark.parametrize("call", ["mmap", "mprotect"])
def test_no_memory_becomes_executable(call: str) -> None:
    act = (
        "page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE)\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "address = ctypes.addressof(ctypes.c_char.from_buffer(page))\n"
    )
    act += {
        "mmap": "mmap.mmap(-1, 4096, prot=mmap.PROT_EXEC | mmap.PROT_READ)",
        "mprotect": "done = libc.mprotect(ctypes.c_void_p(address), 4096, 5)\n"
        "assert done == 0, ctypes.get_errno()",
    }[call]
    done = sealed(act)
    assert done.returncode == 1 and (b"not permitted" in done.stderr or b": 1" in done.stderr)


@pytest.mark.parametrize("act", ["open('/etc/passwd')", "os.listdir('/')"])
def test_landlock_holds_by_itself(act: str) -> None:
    before = "platform.machine = lambda: 'unknown'"  # no table of system calls
    done = sealed(act, before)
    assert done.returncode == 1 and b"PermissionError" in done.stderr


def test_a_layer_that_cannot_be_had_is_told_and_the_others_hold() -> None:
    done = sealed("", "platform.machine = lambda: 'unknown'")
    layers = "{'rlimits': True, 'no_new_privs': True, 'landlock': True, 'seccomp': False}"
    assert done.stdout.decode() == layers


def test_where_seccomp_is_required_nothing_runs_without_it() -> None:
    done = sealed("", "platform.machine = lambda: 'unknown'", strict=True)
    assert done.returncode == 1
    assert b"no table of system calls for unknown), and it is required" in done.stderr


AS_NOBODY = """
import contextlib, json, os, select, sys
sys.path[:0] = [{here!r}, {site!r}]
from child import main
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
assert os.geteuid() != 0
main.main({component!r}, "128", "768", "1")
"""


@pytest.fixture
def readable() -> Iterator[Path]:
    """The component where an ordinary user may read it."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    shutil.copy(compiled_component(), folder / "guest.cwasm")
    (folder / "guest.cwasm").chmod(0o644)
    yield folder / "guest.cwasm"
    shutil.rmtree(folder)


def test_a_child_works_as_an_ordinary_user(readable: Path) -> None:
    site = sysconfig.get_path("purelib")
    code = AS_NOBODY.format(here=str(HERE), site=site, component=str(readable))
    head = {"op": "call", "source": "def reward(completion): return 1", "kind": "score"}
    raw = json.dumps({**head, "load_s": 5.0, "call_s": 5.0, "max_bytes": 10_000}).encode()
    body = b'[{"completion": "", "row": {}}]'
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", code],
        input=struct.pack("<II", len(raw), len(body)) + raw + body,
        capture_output=True,
        env={},
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    ready, rest = frame(done.stdout)
    assert all(layer["holds"] for layer in ready[0]["layers"])
    answer, _ = frame(rest)
    assert json.loads(answer[1]) == {"rows": [1.0], "output": ""}


def frame(raw: bytes) -> tuple[tuple[dict, bytes], bytes]:
    """The first frame, and what follows it."""
    head, body = struct.unpack_from("<II", raw)
    end = 8 + head + body
    return (json.loads(raw[8 : 8 + head]), raw[8 + head : end]), raw[end:]


def test_a_child_that_cannot_start_says_why() -> None:
    command = child_command("main", "nowhere", "128", "768", "0")
    done = subprocess.run(command, capture_output=True, env={}, cwd="/")
    assert done.returncode == 1
    (head, text), _ = frame(done.stdout)
    assert head == {"kind": "failed"} and b"No such file" in text
