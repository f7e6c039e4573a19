"""The architecture, executable: who imports whom, what a file may be called, and how long it may get."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "queuectl"
MODULES = sorted(PACKAGE.rglob("*.py"))
LONGEST = 500  # lines; a chapter has 100 to 350
EMPTY_WORDS = {"Manager", "Helper", "Helpers", "Util", "Utils", "Info", "Base"}


def linted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether all contracts of the pyproject.toml in this folder are kept by the package that is on the path."""
    monkeypatch.chdir(folder)
    return lint_imports(config_filename=str(folder / "pyproject.toml"), no_cache=True, no_logo=True) == 0


def test_everybody_imports_only_from_below(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert linted(ROOT, monkeypatch), capsys.readouterr().out


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ('"engine | contract", "model"', '"model", "engine | contract"', "queuectl.engine is not allowed to import"),
        (
            '    "curves | gains | single",\n    "rooms",',
            '    "rooms",\n    "curves | gains | single",',
            "queuectl.engine.rooms",
        ),
        ('    "curves | gains | single",\n', '    "curves | gains",\n', "must be declared as a layer"),
        ('    "rooms",\n', '    "rooms",\n    "bends",\n', "Missing layer"),
    ],
    ids=["upside-down", "inside-the-engine", "not-listed", "listed-and-gone"],
)
def test_the_linter_would_tell(
    before: str,
    after: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert text.count(before) == 1
    (tmp_path / "pyproject.toml").write_text(text.replace(before, after))
    assert not linted(tmp_path, monkeypatch)
    assert says in capsys.readouterr().out


def named(contract: dict[str, object]) -> Iterator[str]:
    """Every module of ours that a contract names."""
    for above in contract.get("containers", [""]):  # type: ignore[attr-defined]  # TOML
        for layer in contract.get("layers", ()):  # type: ignore[attr-defined]  # TOML
            yield from (f"{above}.{one.strip()}".lstrip(".") for one in re.split("[|:]", layer))
    yield from contract.get("source_modules", ())  # type: ignore[misc]  # TOML


def test_everything_that_contracts_and_documents_name_exists() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    listed = {name.replace(".", "/") for contract in contracts for name in named(contract)}
    assert len(listed) > 25
    listed |= set(re.findall(r"`(queuectl/[a-z_/]+)`", (ROOT / "docs" / "architecture.md").read_text()))
    assert {name for name in listed if not ((ROOT / name).is_dir() or (ROOT / f"{name}.py").is_file())} == set()


def test_the_document_lists_every_package() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    packages = {one.relative_to(ROOT).as_posix() for one in PACKAGE.iterdir() if (one / "__init__.py").is_file()}
    assert {name for name in packages if f"`{name}" not in text} == set()


def test_no_file_is_too_long() -> None:
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in MODULES}
    assert {path: length for path, length in lengths.items() if length > LONGEST} == {}


def words(name: str) -> set[str]:
    """``_PodManager`` → Pod, Manager; ``pod_manager`` → Pod, Manager."""
    return {word.capitalize() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)}


def test_names_say_something() -> None:
    assert words("_PodManager") == words("pod_manager") == {"Pod", "Manager"}
    found = [path.relative_to(ROOT).as_posix() for path in MODULES if words(path.stem) & EMPTY_WORDS]
    for path in MODULES:
        nodes = ast.walk(ast.parse(path.read_text()))
        classes = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
        found += [f"{path.relative_to(ROOT)}: {name}" for name in classes if words(name) & EMPTY_WORDS]
    assert found == []


def test_the_published_folder_holds_no_python() -> None:
    assert list((ROOT / "api").rglob("*.py")) == []
