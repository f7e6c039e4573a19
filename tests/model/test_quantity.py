"""Quantities against three witnesses: Go's own answers (recorded), exact fractions, and the kubernetes client."""

from __future__ import annotations

import json
import math
import re
import time
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from queuectl.model.quantity import MAX_LENGTH, QuantityError, parse, whole
from queuectl.model.resources import MAX

# What apimachinery v0.37.2 answers: [text, Value(), MilliValue()]. null: refused by ParseQuantity. "over": the exact
# value is beyond int64, where Go answers with garbage; "cap": Go capped a binary suffix at 2^63-1.
GO = json.loads((Path(__file__).parent / "quantity_vectors.json").read_text())


def outcome(text: str, per: int) -> int | None:
    try:
        return parse(text, per, negative=True)
    except QuantityError:
        return None


def test_agrees_with_go() -> None:
    wrong = []
    for text, value, milli in GO:
        for per, said in ((1, value), (1000, milli)):
            expected = said if isinstance(said, int) else None
            if outcome(text, per) != expected:
                wrong.append((text, per, said, outcome(text, per)))
    assert wrong == []
    assert len(GO) > 400
    assert sum(value is None for _, value, _ in GO) > 30


DIGITS = st.text("0123456789", max_size=24)
SUFFIXES: dict[str, int | Fraction] = {
    "": 1,
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": 10**3,
    "M": 10**6,
}
SUFFIXES |= {"G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
SUFFIXES |= {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", 1)}
EXPONENTS = st.integers(-30, 30).flatmap(lambda n: st.sampled_from([f"e{n}", f"E{n}", *([f"e+{n}"] if n >= 0 else [])]))


def exact(sign: str, digits: str, part: str | None, suffix: str) -> Fraction:
    """By the definition, with nothing of the product."""
    scale = Fraction(SUFFIXES[suffix]) if suffix in SUFFIXES else Fraction(10) ** int(suffix[1:])
    number = Fraction(int(digits or "0")) + (Fraction(int(part), 10 ** len(part)) if part else 0)
    return (-1 if sign == "-" else 1) * number * scale


@st.composite
def quantities(draw: st.DrawFn) -> tuple[str, Fraction]:
    sign = draw(st.sampled_from(["", "+", "-"]))
    digits, part = draw(DIGITS), draw(st.none() | DIGITS)
    if not digits and not part:
        digits = "7"
    suffix = draw(st.sampled_from(sorted(SUFFIXES)) | EXPONENTS)
    return sign + digits + ("" if part is None else f".{part}") + suffix, exact(sign, digits, part, suffix)


@given(quantities(), st.sampled_from([1, 1000]))
def test_rounds_up_exactly(quantity: tuple[str, Fraction], per: int) -> None:
    text, value = quantity
    nano = math.ceil(abs(value) * 10**9)
    units = math.ceil(Fraction(nano * per, 10**9))
    expected = None if units > MAX else units if value >= 0 else -units
    assert outcome(text, per) == expected
    if value > 0 and expected is not None:
        assert expected >= 1  # who asks for something gets something


@given(quantities())
def test_agrees_with_the_kubernetes_client_where_it_is_exact(quantity: tuple[str, Fraction]) -> None:
    text, value = quantity
    if value < 0 or len(text) > 20 or re.search("[eE][+-]?[0-9]", text) or text.endswith("Ei"):
        return  # the client knows no exponents, and works in 28 digits
    theirs = parse_quantity(text)  # type: ignore[no-untyped-call]  # the library has no annotations
    if theirs * 1000 == int(theirs * 1000) and Fraction(theirs) == value and value * 1000 <= MAX:
        assert parse(text, 1000) == int(theirs * 1000)


@given(quantities())
def test_whole_is_an_integer_of_nanos(quantity: tuple[str, Fraction]) -> None:
    text, value = quantity
    try:
        assert whole(text) == (math.ceil(abs(value) * 10**9) % 10**9 == 0)
    except QuantityError:
        assert abs(value) > MAX


@given(st.text(max_size=40))
def test_anything_else_is_refused_with_its_text(text: str) -> None:
    grammar = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?"
    if not re.fullmatch(grammar, text, re.ASCII):
        with pytest.raises(QuantityError, match=re.escape(repr(text))):
            parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-1", "-1: must not be negative"),
        ("NaN", "'NaN' is no quantity; write for example 8, 500m or 64Gi"),
        ("inf", "'inf' is no quantity; write for example 8, 500m or 64Gi"),
        ("", "'' is no quantity; write for example 8, 500m or 64Gi"),
        (" 8", "' 8': a quantity has no spaces"),
        ("8\n", "'8\\n': a quantity has no spaces"),
        ("1_000", "'1_000': write the digits without separators"),
        ("1K", "'1K': the suffix for 1000 is k (1024: Ki)"),
        ("64GB", "'64GB': write the suffix as k, M, G, T, P, E or Ki, Mi, Gi, Ti, Pi, Ei"),
        ("1e400", "1e400: more than 2^63-1"),
        ("1e4294967299", "1e4294967299: exponent out of range"),  # Go takes this for 1e3
        ("9223372036854775808", "9223372036854775808: more than 2^63-1"),
        ("9" * 1000, f"99999999999999999999…: a quantity has at most {MAX_LENGTH} characters, this one 1000"),
        ("Ki", "'Ki' is no quantity; write for example 8, 500m or 64Gi"),  # Go takes this for 0
    ],
)
def test_refusals_say_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(QuantityError) as refused:
        parse(text)
    assert str(refused.value) == message


def test_units_beyond_int64_are_refused_in_that_unit() -> None:
    assert parse("9223372036854775807") == MAX
    with pytest.raises(QuantityError, match="in units of 1/1000"):
        parse("9223372036854775807", 1000)


def test_hostile_text_costs_nothing() -> None:
    """No text leads to giant integers: all of these together take less time than one of them would without bounds."""
    texts = [f"{'9' * 60}e{sign}{exponent}" for sign in ("", "-") for exponent in range(999_999_000, 999_999_999)]
    began = time.perf_counter()
    for text in texts:
        outcome(text, 1000)
    assert (time.perf_counter() - began) / len(texts) < 1e-3  # measured 4 µs; 10**999999999 alone takes minutes
