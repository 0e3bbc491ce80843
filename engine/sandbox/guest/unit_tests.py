"""Unit tests of a completion's code, with the expected results kept out of its reach.

`plan` splits tests into expressions and what they have to give; it never meets the code. `run` runs
the code and one expression, or one input, in another instance, and says what came of it. Whoever
asks compares. Values travel as text that is equal where Python's values are.
"""

from __future__ import annotations

import ast
import builtins
import io
import sys
import types
from typing import Any

MAX_DEPTH = 50  # of a value
MAX_CHARACTERS = 1_000_000  # of a value or of an output
CODE, TESTS = "<reward>", "<tests>"  # the code is what a line number belongs to


def plan(tests: str) -> dict[str, Any]:
    """{"setup": statements, "checks": [[number of statements before it, expression, value]]}."""
    setup: list[str] = []
    checks: list[list[Any]] = []
    is_checked = True  # nothing was called since the last check
    for node in ast.parse(tests).body:
        if isinstance(node, ast.Assert):
            checks.append([len(setup), *_expected(node.test)])
            is_checked = True
        else:
            setup.append(ast.unparse(node))
            is_checked = is_checked and not isinstance(node, ast.Expr)
    if not is_checked or not checks:
        checks.append([len(setup), "True", canonical(True)])  # such as check(candidate)
    return {"setup": setup, "checks": checks}


def _expected(test: ast.expr) -> tuple[str, str]:
    """An expression, and the value that the assertion wants of it."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return f"bool({ast.unparse(test.operand)})", canonical(False)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        left, right = test.left, test.comparators[0]
        for wanted, asked in ((right, left), (left, right)):
            try:
                return ast.unparse(asked), canonical(ast.literal_eval(wanted))
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
    return f"bool({ast.unparse(test)})", canonical(True)


def run(code: str, setup: str = "", expression: str = "", input: str | None = None) -> str:
    """The expression's value after the code and the setup, or the output for an input."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    namespace = module.__dict__
    output = _connect(input or "")
    try:
        exec(compile(code, CODE, "exec"), namespace)  # noqa: S102
    except SystemExit:
        if input is None:
            raise
    if input is not None:
        output.flush()
        return _cut(output.buffer.getvalue().decode("utf-8", "replace"))  # type: ignore[attr-defined]
    exec(compile(setup, TESTS, "exec"), namespace)  # noqa: S102
    return canonical(eval(compile(expression, TESTS, "eval"), namespace))  # noqa: S307


def _connect(text: str) -> io.TextIOWrapper:
    """Standard input and output as a program has them; returns the output."""
    sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode("utf-8", "replace")), encoding="utf-8")
    sys.stdout = output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="replace")

    def read_line(prompt: object = "") -> str:
        line = sys.stdin.readline()
        if not line:
            raise EOFError("there is no more input")
        return line.removesuffix("\n")

    def open_input(file: object, *_: Any, **__: Any) -> Any:
        if file == 0:
            return sys.stdin
        raise PermissionError("not available in the sandbox")

    builtins.input, builtins.open = read_line, open_input  # type: ignore[assignment]
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]
    return output


def canonical(value: Any, depth: int = 0) -> str:
    """Text that is equal for equal values. Raises: TypeError for what is not plain data."""
    if depth > MAX_DEPTH:
        raise ValueError("the value is nested too deeply")
    return _cut(_written(value, depth))


def _written(value: Any, depth: int) -> str:
    if value is None:
        return "None"
    if isinstance(value, (bool, int)):
        return hex(value)
    if isinstance(value, float):
        return hex(int(value)) if value.is_integer() else value.hex()
    if isinstance(value, str):
        return ascii(str(value))
    if isinstance(value, (bytes, bytearray)):
        return "b" + value.hex()
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return f"{kind}({', '.join(canonical(item, depth + 1) for item in value)})"
    if isinstance(value, (set, frozenset)):
        return f"set({', '.join(sorted(canonical(item, depth + 1) for item in value))})"
    if isinstance(value, dict):
        items = (
            f"{canonical(key, depth + 1)}: {canonical(item, depth + 1)}"
            for key, item in value.items()
        )
        return f"dict({', '.join(sorted(items))})"
    raise TypeError(f"{str(type(value).__name__)[:80]} is no value that can be compared")


def _cut(text: str) -> str:
    if len(text) > MAX_CHARACTERS:
        raise ValueError("the result is too long")
    return text
