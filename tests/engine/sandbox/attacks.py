"""Hostile reward functions by family: bodies of `def reward(**k)`, and what has to come of each.

STOPPED: no score, and an error for the tenant. SCORED: a number that is the tenant's own affair.
EITHER: as the interpreter likes. `MARK` stands for a file that must never come to be.
"""

from __future__ import annotations

from textwrap import indent

STOPPED, SCORED, EITHER = "stopped", "scored", "either"
MARK = "/tmp/marlaas-written-by-a-reward-function"

FAMILIES: dict[str, dict[str, tuple[str, str]]] = {
    "loops, also those that swallow what interrupts them": {
        "plain": (STOPPED, "while True: pass"),
        "swallowing": (
            STOPPED,
            "while True:\n  try:\n    while True: pass\n  except BaseException: pass",
        ),
        "in a finaliser": (
            STOPPED,
            "class A:\n  def __del__(self):\n    while True: pass\na = A()\ndel a\nreturn 1",
        ),
        "in C": (STOPPED, "import itertools, collections\ncollections.deque(itertools.count(), 0)"),
        "in the error's text": (
            STOPPED,
            "class E(Exception):\n  def __str__(self):\n    while True: pass\nraise E()",
        ),
    },
    "memory": {
        "large pieces": (
            STOPPED,
            'l = []\nwhile True: l.append("x" * 1000000 + str(len(l)))',
        ),
        "small pieces": (STOPPED, "l = []\nwhile True: l.append([len(l)])"),
        "one text": (STOPPED, 'return len("x" * (10**10))'),
        "one list": (STOPPED, "return len(list(range(10**10)))"),
        "doubling": (STOPPED, "b = b'x'\nwhile True: b += b"),
        "unpacked": (
            STOPPED,
            "import zlib\nreturn len(zlib.decompress(zlib.compress(bytes(10**9))))",
        ),
    },
    "integers of many digits, one call that does not look up": {
        "power": (STOPPED, "return 10**10**9 % 7"),
        "to text": (STOPPED, "return len(str(7**3000000))"),
        "factorial": (STOPPED, "import math\nreturn math.factorial(10**7) % 7"),
    },
    "processes and threads": {
        "fork": (STOPPED, "import os\nwhile True: os.fork()"),
        "threads": (
            STOPPED,
            "import threading\nfor i in range(1000):\n"
            "  threading.Thread(target=lambda: None).start()\nreturn 1",
        ),
        "_thread": (STOPPED, "import _thread\n_thread.start_new_thread(print, ())\nreturn 1"),
        "subprocess": (STOPPED, 'import subprocess\nreturn len(subprocess.check_output(["id"]))'),
        "system": (STOPPED, 'import os\nreturn float(os.system("touch MARK"))'),
        "posix": (STOPPED, 'import posix\nreturn float(posix.system("touch MARK"))'),
        "exec": (STOPPED, 'import os\nos.execv("/bin/sh", ["sh", "-c", "touch MARK"])'),
    },
    "regular expressions": {
        "nested repeats": (
            EITHER,
            'import re\nreturn float(bool(re.match(r"(a+)+$", "a"*40 + "b")))',
        ),
        "alternatives": (
            EITHER,
            'import re\nreturn float(bool(re.match(r"(a|a)*$", "a"*40 + "b")))',
        ),
    },
    "depth": {
        "recursion": (STOPPED, "def f(n): return f(n + 1)\nreturn f(0)"),
        "a nest to show": (
            STOPPED,
            "x = ()\nfor _ in range(300000): x = (x,)\nreturn len(repr(x))",
        ),
        "a nest to read": (STOPPED, 'return eval("(" * 100000 + "1" + ")" * 100000)'),
        "a nest of JSON": (
            STOPPED,
            'import json\nreturn len(json.loads("[" * 10**6 + "]" * 10**6))',
        ),
        "comparison": (
            STOPPED,
            "class K:\n  def __eq__(s, o): return s == o\nreturn K() == K()",
        ),
    },
    "files": {
        "passwd": (STOPPED, 'return len(open("/etc/passwd").read())'),
        "proc": (STOPPED, 'return len(open("/proc/self/environ", "rb").read())'),
        "writing": (STOPPED, 'open("MARK", "w").write("x")\nreturn 1'),
        "pathlib": (STOPPED, 'import pathlib\npathlib.Path("MARK").write_text("x")\nreturn 1'),
        "raw": (STOPPED, 'import _io\n_io.FileIO("MARK", "w").write(b"x")\nreturn 1'),
        "listing": (STOPPED, 'import posix\nreturn len(posix.listdir("/"))'),
        "descriptors": (STOPPED, "import posix\nreturn len(posix.read(0, 10))"),
    },
    "environment, network, native code": {
        "environment": (
            STOPPED,
            "import os\nif os.environ: return 1.0\nraise RuntimeError('no variables')",
        ),
        "socket": (STOPPED, "import socket\nsocket.socket().connect(('127.0.0.1', 22))\nreturn 1"),
        "_socket": (STOPPED, "import _socket\nreturn float(_socket.socket().fileno())"),
        "url": (
            STOPPED,
            "import urllib.request as u\nreturn len(u.urlopen('http://127.0.0.1').read())",
        ),
        "ctypes": (STOPPED, "import ctypes\nreturn ctypes.CDLL(None).getpid()"),
    },
    "introspection": {
        "subclasses": (
            STOPPED,
            "for c in ().__class__.__mro__[1].__subclasses__():\n"
            '  if c.__name__ == "_wrap_close":\n'
            '    return float(c.__init__.__globals__["system"]("touch MARK"))\n'
            'raise RuntimeError("there is none")',
        ),
        "frames": (
            SCORED,
            "import sys\nf = sys._getframe()\nn = 0\nwhile f: n += 1; f = f.f_back\nreturn n",
        ),
        "all objects": (
            SCORED,
            "import gc\nreturn float(sum(isinstance(o, dict) for o in gc.get_objects()))",
        ),
        "the host's imports": (STOPPED, "import wasmtime\nreturn 1"),
    },
    "crashes": {
        "bytecode": (
            STOPPED,
            "def g(): pass\n"
            "g.__code__ = g.__code__.replace(co_code=bytes([100, 255] * 20))\nreturn g()",
        ),
        "abort": (STOPPED, "import os\nos.abort()"),
        "faulthandler": (STOPPED, "import faulthandler\nfaulthandler._sigsegv()\nreturn 1"),
    },
    "leaving, signals": {
        "sys.exit": (STOPPED, "import sys\nsys.exit(0)"),
        "os._exit": (STOPPED, "import os\nos._exit(0)"),
        "posix._exit": (STOPPED, "import posix\nposix._exit(0)"),
        "kill": (STOPPED, "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nreturn 1"),
        "interrupt": (STOPPED, "raise KeyboardInterrupt"),
        "GeneratorExit": (STOPPED, "raise GeneratorExit"),
    },
    "output and descriptors": {
        "much": (SCORED, 'for _ in range(1000): print("x" * 1000000)\nreturn 1'),
        "to the real one": (SCORED, "import sys\nprint('x', file=sys.__stdout__)\nreturn 1"),
        "forged": (STOPPED, 'import os\nos.write(1, b"\\x05\\0\\0\\0[1.0]")\nreturn 0'),
        "sleep": (EITHER, "import time\ntime.sleep(100)\nreturn 1"),
    },
    "what comes back": {
        "NaN": (STOPPED, 'return float("nan")'),
        "infinity": (STOPPED, 'return float("inf")'),
        "text": (STOPPED, 'return "1.0"'),
        "nothing": (STOPPED, "return None"),
        "itself": (STOPPED, "l = []\nl.append(l)\nreturn l"),
        "large text": (STOPPED, 'return "x" * 50000000'),
        "large number": (STOPPED, "return 10**5000"),
        "a number that lies": (
            STOPPED,
            "class N(float):\n  def __float__(self): return 'x'\nreturn N(1)",
        ),
        "a large error": (STOPPED, 'raise ValueError("x" * 20000000)'),
        "a name of an error": (STOPPED, 'raise type("E" * 10**6, (Exception,), {})()'),
    },
}


def source_of(body: str) -> str:
    return "def reward(**k):\n" + indent(body.replace("MARK", MARK), "    ") + "\n"
