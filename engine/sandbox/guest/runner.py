"""What the component exports, inside the sandbox: sources of tenants are run and called here.

Baked into the component: CPython starts, imports all this and closes itself, and that started
state is the memory image of every fresh instance. Nothing here protects anybody: a tenant's code
lives in the same interpreter and can patch all of it. The host believes none of the answers.
"""

from __future__ import annotations

import ast
import json
import linecache
import sys
import types
from typing import Any

import closing
import unit_tests  # noqa: F401 - for our own sources
import wit_world  # made by componentize-py from guest.wit
from problems import FILE, problem
from shapes import Scorer, scorer_of

OUTPUT_CHARACTERS = 65_536

_dumps, _loads = json.dumps, json.loads
_output = closing.Capture(OUTPUT_CHARACTERS)
closing.close_interpreter(_output)


def _module(name: str) -> types.ModuleType:
    """A module of the tenant's, known to `sys.modules` as dataclasses and enums ask for it."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    return module


class _Loaded:
    """What this instance has been given. Not in WitWorld: each call is made on a new one."""

    score_all: Scorer | None = None
    session: types.ModuleType | None = None


class WitWorld(wit_world.WitWorld):
    """The exports of guest.wit."""

    def load(self, source: str, kind: str) -> str:
        closing.Files.is_closed = True
        linecache.cache[FILE] = (len(source), None, source.splitlines(True), FILE)
        try:
            module = _module("reward")
            exec(compile(source, FILE, "exec"), module.__dict__)  # noqa: S102
            _Loaded.score_all = scorer_of(module.__dict__, kind)
        except BaseException as error:
            return _dumps(problem(error))
        return "{}"

    def call(self, calls: str) -> str:
        score_all = _Loaded.score_all
        assert score_all is not None
        _output.take()
        rows = score_all(_loads(calls))
        return _dumps({"rows": rows, "output": _output.take()})

    def execute(self, code: str) -> str:
        closing.Files.is_closed = True
        if _Loaded.session is None:
            _Loaded.session = _module("__main__")
        _output.take()
        found: dict[str, Any] = {}
        try:
            self._run(code, _Loaded.session.__dict__)
        except BaseException as error:
            found = problem(error)
        return _dumps({**found, "output": _output.take()})

    def _run(self, code: str, namespace: dict[str, Any]) -> None:
        """As a notebook does: the value of a last expression is printed."""
        tree = ast.parse(code, FILE)
        last = tree.body[-1] if tree.body else None
        last = last if isinstance(last, ast.Expr) else None
        if last is not None:
            tree.body.pop()
        exec(compile(tree, FILE, "exec"), namespace)  # noqa: S102
        if last is not None:
            value = eval(compile(ast.Expression(last.value), FILE, "eval"), namespace)  # noqa: S307
            if value is not None:
                _output.write(repr(value) + "\n")
