"""Formulas give what they say; everything else of Python is refused with its place."""

from __future__ import annotations

import pytest

from engine.rewards.formula import FormulaError, check_formula, formula_value

VALUES = {"a": 0.5, "b": 3.0, "größe": 2.0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.8 * a + 0.2 * b", 1.0),
        ("a - b / 2", -1.0),
        ("-a + +b", 2.5),
        ("2 ^ b", 8.0),
        ("b ** 2 ^ 1 + 1", 10.0),
        ("2 ^ a * 2 ^ a", 2.0),
        ("min(a, b, 2)", 0.5),
        ("max(a, b)", 3.0),
        ("abs(a - b)", 2.5),
        ("floor(a) + ceil(a)", 1.0),
        ("exp(0) + log(exp(2)) + sqrt(4)", 5.0),
        ("a < b", 1.0),
        ("a >= b", 0.0),
        ("0 < a <= 0.5", 1.0),
        ("(a == 0.5) * (b != 3)", 0.0),
        ("  größe * 2", 4.0),
        ("1e3 * a", 500.0),
        ("((((a))))", 0.5),
    ],
)
def test_formulas(text: str, expected: float) -> None:
    check_formula(text, VALUES)
    assert formula_value(text, VALUES) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        ("", 1, ""),
        ("a +", 4, "invalid syntax"),
        ("a + c", 5, "there is no c, only a, b, größe, min"),
        ("a ^ 2 + c", 9, "there is no c"),
        ("  a ** 2 ^ 2 + c", 16, "there is no c"),
        ("größe + c", 9, "there is no c"),
        ("a.real", 1, "only numbers, names"),
        ("a[0]", 1, "only numbers, names"),
        ("(1).__class__", 1, "only numbers, names"),
        ("__import__('os')", 1, "not one of the functions"),
        ("min", 1, "there is no min"),
        ("min(a)", 1, "min takes 2 to 16 values, not 1"),
        ("sqrt(a, b)", 1, "sqrt takes 1 values, not 2"),
        ("min(*a)", 1, "min takes plain values"),
        ("log(a, base=2)", 1, "log takes plain values"),
        ("(lambda: 1)()", 1, "not one of the functions"),
        ("[a for a in b]", 1, "only numbers, names"),
        ("a if b else 1", 1, "only numbers, names"),
        ("a and b", 1, "only numbers, names"),
        ("a // b", 1, "not one of"),
        ("a % b", 1, "not one of"),
        ("a << 9", 1, "not one of"),
        ("~a", 1, "not one of"),
        ("not a", 1, "not one of"),
        ("a in b", 1, "not one of"),
        ("a + 'x'", 5, "only numbers"),
        ("a + True", 5, "only numbers"),
        ("a + 2j", 5, "only numbers"),
        ("a + 1e999", 5, "too large"),
        ("a + " + "9" * 400, 5, "too large"),
        ("a := 1", 3, "invalid syntax"),
        ("f'{a}'", 1, "only numbers, names"),
        ("a + (b", 5, "was never closed"),
        ("a, b", 1, "only numbers, names"),
        ("-" * 60 + "a", 41, "nested more than 40 deep"),
    ],
)
def test_all_else_is_refused_with_its_place(text: str, place: int, told: str) -> None:
    with pytest.raises(FormulaError) as caught:
        check_formula(text, ("a", "b", "größe"))
    message = str(caught.value)
    assert message.startswith(f"At character {place}: ")
    assert told in message


@pytest.mark.parametrize(
    "text", ["(" * 450, "(" * 249 + "a" + ")" * 249, "-" * 499, "a" * 501, "a+" * 249 + "a", "\0"]
)
def test_what_is_too_deep_or_long_is_refused(text: str) -> None:
    with pytest.raises(FormulaError):
        check_formula(text, ("a",))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1 / (a - a)", "divides by zero"),
        ("exp(10 ^ 6)", "too large"),
        ("9 ^ 9 ^ 9 ^ 9", "too large"),
        ("floor(1e308 * 10)", "too large"),
        ("sqrt(-1)", "does not exist"),
        ("log(0)", "does not exist"),
        ("(0 - 1) ^ 0.5", "does not exist"),
        ("0 ^ -1", "does not exist"),
    ],
)
def test_what_has_no_value_is_said(text: str, told: str) -> None:
    check_formula(text, VALUES)
    with pytest.raises(FormulaError, match=told):
        formula_value(text, VALUES)
