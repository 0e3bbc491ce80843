"""Formulas that tenants write over scores, such as `0.8 * answer + 0.2 * min(format, 1)`.

Parsed as Python expressions and computed by this file alone: numbers, the given names, + - * / ^
(** is the same), comparisons (1 or 0) and the functions below; nothing else is looked up or called.
All numbers are floats, so that no power can fill memory.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any

MAX_CHARACTERS = 500
MAX_DEPTH = 40

FUNCTIONS: dict[str, tuple[Callable[..., float], int, int]] = {  # least and most arguments
    "min": (min, 2, 16),
    "max": (max, 2, 16),
    "abs": (abs, 1, 1),
    "floor": (math.floor, 1, 1),
    "ceil": (math.ceil, 1, 1),
    "exp": (math.exp, 1, 1),
    "sqrt": (math.sqrt, 1, 1),
    "log": (math.log, 1, 1),
}
_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: math.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[float], float]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_COMPARE: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


class FormulaError(ValueError):
    """What is wrong with a formula, as a full sentence."""


def check_formula(text: str, names: Collection[str]) -> None:
    """Raises: FormulaError, with the place, if the text is no formula over the names."""
    _check(_parsed(text), names, text, MAX_DEPTH)


def formula_value(text: str, values: Mapping[str, float]) -> float:
    """What a checked formula gives. Raises: FormulaError for a division by zero and the like."""
    try:
        return float(_value(_parsed(text), values))
    except ZeroDivisionError:
        raise FormulaError("It divides by zero.") from None
    except OverflowError:
        raise FormulaError("It gives a number that is too large.") from None
    except ValueError:  # of math: the root or logarithm of a negative number
        raise FormulaError("It takes a root, power or logarithm that does not exist.") from None


@lru_cache(maxsize=256)
def _parsed(text: str) -> ast.expr:
    """The expression. Raises: FormulaError."""
    if len(text) > MAX_CHARACTERS:
        raise FormulaError(f"Must have at most {MAX_CHARACTERS} characters, not {len(text):,}.")
    written = text.replace("^", "**")
    try:
        return ast.parse(written.lstrip(), mode="eval").body
    except SyntaxError as error:
        offset = _num_leading(text) + error.offset - 1 if error.offset else len(written)
        raise FormulaError(_at(text, offset, error.msg)) from None
    except (ValueError, MemoryError, RecursionError):
        raise FormulaError(
            "Cannot be read: it is nested too deep, or has odd characters."
        ) from None


def _check(node: ast.expr, names: Collection[str], text: str, depth: int) -> None:
    problem, inner = _problem(node, names)
    if depth <= 0:
        problem = f"nested more than {MAX_DEPTH} deep"
    if problem:
        written = text.replace("^", "**").lstrip().encode()
        before = written[: node.col_offset].decode(errors="ignore")  # it counts bytes
        raise FormulaError(_at(text, _num_leading(text) + len(before), problem))
    for part in inner:
        _check(part, names, text, depth - 1)


def _problem(node: ast.expr, names: Collection[str]) -> tuple[str, list[ast.expr]]:
    """What is wrong with a node itself, and the nodes that it is made of."""
    if isinstance(node, ast.Constant):
        return _constant_problem(node.value), []
    if isinstance(node, ast.Name):
        known = ", ".join((*names, *FUNCTIONS))
        return ("" if node.id in names else f"there is no {node.id[:50]}, only {known}"), []
    if isinstance(node, ast.BinOp):
        return ("" if type(node.op) in _BINARY else "not one of + - * / ^"), [node.left, node.right]
    if isinstance(node, ast.UnaryOp):
        return ("" if type(node.op) in _UNARY else "not one of + -"), [node.operand]
    if isinstance(node, ast.Compare):
        is_known = all(type(op) in _COMPARE for op in node.ops)
        return ("" if is_known else "not one of < <= > >= == !="), [node.left, *node.comparators]
    if isinstance(node, ast.Call):
        return _call_problem(node), node.args
    return "only numbers, names, + - * / ^, comparisons and functions may stand here", []


def _constant_problem(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "only numbers may stand here"
    try:
        return "" if math.isfinite(float(value)) else "the number is too large"
    except OverflowError:
        return "the number is too large"


def _call_problem(node: ast.Call) -> str:
    if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
        return f"not one of the functions {', '.join(FUNCTIONS)}"
    _, least, most = FUNCTIONS[node.func.id]
    if node.keywords or any(isinstance(part, ast.Starred) for part in node.args):
        return f"{node.func.id} takes plain values"
    if not least <= len(node.args) <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        return f"{node.func.id} takes {wanted} values, not {len(node.args)}"
    return ""


def _value(node: ast.expr, values: Mapping[str, float]) -> float:
    """Of a node that `_check` has passed."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return float(values[name])
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](_value(left, values), _value(right, values))
        case ast.UnaryOp(op=sign, operand=operand):
            return _UNARY[type(sign)](_value(operand, values))
        case ast.Compare(left=left, ops=ops, comparators=others):
            terms = [_value(term, values) for term in (left, *others)]
            pairs = zip(ops, terms, terms[1:], strict=False)
            return float(all(_COMPARE[type(op)](one, other) for op, one, other in pairs))
        case ast.Call(func=ast.Name(id=name), args=args):
            return float(FUNCTIONS[name][0](*(_value(part, values) for part in args)))
    raise AssertionError(f"{type(node).__name__} was not refused")


def _num_leading(text: str) -> int:
    return len(text) - len(text.lstrip())


def _at(text: str, offset: int, message: str) -> str:
    """The message with its place as the person wrote it; offset: where ^ is written as **."""
    place = 0
    while offset > 0 and place < len(text):
        offset -= 2 if text[place] == "^" else 1
        place += 1
    return f"At character {place + 1}: {message}."
