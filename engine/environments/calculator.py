"""Arithmetic for policies that cannot do it: a formula in, a number out."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, DecimalException, localcontext
from typing import Any, ClassVar

from ..rewards import Services
from .tool import ToolError

MAX_CHARACTERS = 500
MAX_EXPONENT = 1_000
PRECISION = 28  # significant digits

_BINARY: dict[type[ast.operator], Callable[[Decimal, Decimal], Decimal]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_SIGNS = str.maketrans({"×": "*", "÷": "/", "−": "-", "^": "§", ",": ""})


@dataclass(frozen=True)
class Calculator:
    """Computes a formula: + - * / % ^ and brackets."""

    name: str = "calculator"

    description: ClassVar[str] = "a formula to compute, such as (12 + 3) * 4"
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"formula": {"type": "string", "description": "such as (12 + 3) * 4"}},
        "required": ["formula"],
    }
    examples: ClassVar[tuple[tuple[str, str, str, str], ...]] = (
        ("A box holds 24 eggs. How many eggs are in 17 boxes?", "24 * 17", "408", "408"),
    )

    async def call(self, arguments: Mapping[str, Any], services: Services) -> str:
        """The value, with at most 28 significant digits. Raises: ToolError."""
        formula = arguments["formula"].strip()
        if len(formula) > MAX_CHARACTERS:
            raise ToolError(f"the formula has more than {MAX_CHARACTERS} characters")
        try:
            tree = ast.parse(formula.translate(_SIGNS).replace("§", "**"), mode="eval")
            with localcontext() as context:
                context.prec, context.Emax, context.Emin = PRECISION, 10_000, -10_000
                value = _value(tree.body)
        except ToolError:
            raise
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ToolError("that is no formula; write numbers, + - * / % ^ and ( )") from None
        except (DecimalException, ZeroDivisionError):
            raise ToolError("the formula has no value, or one that is too large") from None
        if not value.is_finite():
            raise ToolError("the formula has no value, or one that is too large")
        return _shown(value)


def _value(node: ast.AST) -> Decimal:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return Decimal(str(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow) and abs(right) > MAX_EXPONENT:
            raise ToolError(f"an exponent may be {MAX_EXPONENT} at most")
        return _BINARY[type(node.op)](left, right)
    raise ToolError("only numbers, + - * / % ^ and ( ) can be used")


def _shown(value: Decimal) -> str:
    if value == value.to_integral_value() and abs(value) < Decimal(10) ** PRECISION:
        return str(int(value))
    return f"{value.normalize():g}"
