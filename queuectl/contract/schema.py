"""What our resources are made of: strict bases, bounded field types, and rules that are written once for two readers.

The API server reads a rule's CEL, ``v1alpha1.validate`` its Python. Everything has a bound, because the cost of a CEL
rule is judged by the largest object that the schema admits (10 million units a rule, 100 million a CRD).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, PydanticCustomError, core_schema

from queuectl.model import quantity
from queuectl.model.resources import CPU, MAX, unit


@dataclass(frozen=True)
class Rule:
    """A rule between fields: its ``cel``, the ``path`` it is reported at, the ``message``, and the same in Python.

    ``check(self, old)`` is true when the rule holds; ``old`` is None unless an update is judged. ``cel`` is None where
    another part of the schema already makes the API server check it.
    """

    cel: str | None
    path: str
    message: str
    check: Callable[[Any, Any], bool]


class Part(BaseModel):
    """Of a resource: camel-case on the wire, either spelling in Python."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True, extra="forbid", strict=True
    )
    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="after")
    def _keep_rules(self, info: ValidationInfo) -> Self:
        old = (info.context or {}).get("old")
        for rule in type(self).rules:
            if not rule.check(self, old if type(old) is type(self) else None):
                raise PydanticCustomError("rule", "{message}", {"message": rule.message, "path": rule.path})
        return self


class Spec(Part):
    """What people write: an unknown field is a mistake, and said so."""


class Status(Part):
    """What the controller writes; fields of a newer version are ignored."""

    model_config = ConfigDict(extra="ignore")


class Metadata(Part):
    """The part of ObjectMeta that we read; the rest is kept as it came."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Field(min_length=1, max_length=63)]
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
Name = Annotated[str, Field(pattern=LABEL, min_length=1, max_length=63)]
LevelName = Name
NodeName = Annotated[str, Field(min_length=1, max_length=253)]
Resource = Annotated[
    str,
    Field(
        pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        min_length=1,
        max_length=253,
    ),
]
LABEL_KEY = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
LabelValue = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", max_length=63)]
Count = Annotated[int, Field(ge=0)]
Word = Annotated[str, Field(pattern=r"^[A-Za-z]*$", max_length=64)]
Message = Annotated[str, Field(max_length=4096)]

_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})")


def _time(text: str) -> str:
    if not _TIME.fullmatch(text):
        raise ValueError("write the time as in 2026-01-31T14:05:09Z (RFC 3339)")
    datetime.fromisoformat(text)
    return text


Time = Annotated[str, AfterValidator(_time), WithJsonSchema({"type": "string", "format": "date-time", "maxLength": 40})]

# The documented grammar of a quantity, but no minus, and exponents of at most two digits.
QUANTITY_PATTERN = "^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]{1,2})?$"
QUANTITY_LENGTH = 32


def _quantity(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        raise ValueError(  # noqa: TRY004 - pydantic turns a ValueError into a message and lets a TypeError through
            f"write {value!r} in quotes, or as a whole number: numbers with a point lose precision"
        )
    return value


def _checked(text: str) -> str:
    quantity.parse(text)
    if not re.fullmatch(QUANTITY_PATTERN, text):
        raise ValueError(f"{text}: write it without a minus, and exponents with at most two digits")
    if len(text) > QUANTITY_LENGTH:
        raise ValueError(f"at most {QUANTITY_LENGTH} characters")
    return text


Quantity = Annotated[
    str,
    BeforeValidator(_quantity),
    AfterValidator(_checked),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY_PATTERN,
            "maxLength": QUANTITY_LENGTH,
            "minimum": 0,
        }
    ),
]


@dataclass(frozen=True)
class Keyed:
    """Annotation of a list whose entries are told apart by these fields: merged entry by entry, and no key twice.

    ``keys`` are names in Python, ``at_most`` bounds the list.
    """

    keys: tuple[str, ...]
    at_most: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self._distinct, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler(schema) | {
            "maxItems": self.at_most,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": [to_camel(key) for key in self.keys],
        }

    def _distinct(self, entries: list[Any]) -> list[Any]:
        if len(entries) > self.at_most:
            raise ValueError(f"at most {self.at_most} entries")
        seen: set[tuple[object, ...]] = set()
        for entry in entries:
            key = tuple(getattr(entry, name) for name in self.keys)
            if key in seen:
                raise ValueError(f"{', '.join(map(str, key))} is listed twice; merge the two entries")
            seen.add(key)
        return entries


def keyed(*keys: str, at_most: int) -> Keyed:
    """A list of at most ``at_most`` entries, keyed by these fields (x-kubernetes-list-type: map)."""
    return Keyed(keys, at_most)


class Condition(Status):
    """One observation, as everywhere in Kubernetes."""

    type: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9]*$", max_length=63)]
    status: Annotated[str, Field(pattern=r"^(True|False|Unknown)$", max_length=7)]
    reason: Word = ""
    message: Message = ""
    last_transition_time: Time


def _value(text: str | None, name: str) -> int | None:
    return None if text is None else quantity.parse(text, unit(name))


def _fits(name: str, text: str | None) -> bool:
    try:
        _value(text, name)
    except quantity.QuantityError:
        return False
    return True


def _is_whole(name: str, text: str | None) -> bool:
    return text is None or name == CPU or quantity.whole(text)


def _amount_rules(field: str) -> tuple[Rule, ...]:
    value = f"quantity(string(self.{field}))"
    # unit() of model/resources.py in CEL. Go caps binary suffixes at 2^63-1, hence "less than".
    milli = "self.name == 'cpu' || (self.name.contains('/') && !self.name.startsWith('hugepages-'))"
    fits = f"{value}.isLessThan(quantity({milli} ? '{MAX}m' : '{MAX}'))"
    # isInteger() looks at the spelling: 1000m is none, nor is 31.0Mi. So the integer next to its float, which is right below
    # 2^53, is taken away; beyond, the check in Python decides.
    real = f"{value}.asApproximateFloat()"
    integer = f"{real} >= {2**53}.0 || {value}.sub(int({real} + 0.5)).compareTo(quantity('0')) == 0"
    return (
        Rule(
            f"{_unsafe(field)} || {fits}",
            f".{field}",
            "is too large",
            lambda self, _: _fits(self.name, getattr(self, field)),
        ),
        Rule(
            f"{_unsafe(field)} || self.name == 'cpu' || !{fits} || {integer}",
            f".{field}",
            "must be a whole number: only cpu comes in fractions (a shared GPU is a resource of its own)",
            lambda self, _: _is_whole(self.name, getattr(self, field)),
        ),
    )


def _unsafe(field: str) -> str:
    """CEL: unset, or nothing that quantity() may be asked about.

    The server evaluates rules although the pattern has already failed, and quantity('1e9999999999') keeps it busy for
    minutes with a power of ten (measured on 1.37.2: the request times out, one core stays at 100 %).
    """
    return f"!has(self.{field}) || !string(self.{field}).matches('{QUANTITY_PATTERN}')"


AMOUNT_RULES = (
    *_amount_rules("quota"),
    *_amount_rules("limit"),
    Rule(
        f"{_unsafe('quota')} || {_unsafe('limit')}"
        " || quantity(string(self.quota)).compareTo(quantity(string(self.limit))) <= 0",
        ".quota",
        "must not be above limit",
        lambda self, _: _at_most(_value(self.quota, self.name), _value(self.limit, self.name)),
    ),
)


def _at_most(one: int | None, other: int | None) -> bool:
    return one is None or other is None or one <= other


_ADVICE = {"extra_forbidden": "unknown field; correct its name or remove it", "missing": "is missing"}


def describe(error: ErrorDetails) -> str:
    """One of pydantic's errors as people read it: ``spec.resources[0].quota: must not be above limit``."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error["loc"])
    path += error.get("ctx", {}).get("path", "")
    message = _ADVICE.get(error["type"]) or error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"{path.lstrip('.') or 'object'}: {message}"
