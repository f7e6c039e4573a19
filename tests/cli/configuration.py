"""The table of settings in docs/configuration.md, from the model itself. ``python -m tests.cli.configuration`` writes it."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

from pydantic import BeforeValidator
from pydantic.alias_generators import to_camel

from queuectl.contract import config
from queuectl.contract.config import Configuration

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
BEGIN, END = "<!-- settings: generated -->\n", "<!-- end of settings -->\n"


def meanings() -> dict[str, str]:
    """Field → its docstring. AssertionError when one has none."""
    (model,) = (
        node for node in ast.parse(inspect.getsource(config)).body if getattr(node, "name", "") == "Configuration"
    )
    assert isinstance(model, ast.ClassDef)
    found: dict[str, str] = {}
    last = ""
    for node in model.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            last = node.target.id
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and last:
            found[last], last = str(node.value.value), ""
        else:
            last = ""
    return found


def duration(milliseconds: int) -> str:
    """Milliseconds as the file writes them: the largest unit that divides them."""
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


def table() -> str:
    """Markdown."""
    known = meanings()
    lines = ["| setting | default | meaning |", "|---|---|---|"]
    for name, field in Configuration.model_fields.items():
        is_duration = any(isinstance(part, BeforeValidator) for part in field.metadata)
        default: Any = duration(field.default) if is_duration else field.default
        meaning = " ".join(known.get(name, "").split())
        assert meaning, f"{name} has no docstring in queuectl/contract/config.py"
        lines.append(f"| `{to_camel(name)}` | `{default}` | {meaning} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with the table renewed."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return head + BEGIN + table() + END + tail


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
