"""The code in the pages of docs/ runs, and the reference names everything."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import a3m
import exon

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)  # "```python fragment" does not run
PAGES = [page for page in sorted(DOCS.glob("*.md")) if BLOCK.search(page.read_text(encoding="utf-8"))]


def test_the_pages_with_code_are_found() -> None:
    assert {"patterns.md", "tutorial.md"} <= {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_a_page_runs_from_top_to_bottom(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = page.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": f"docs.{page.stem}"}
    try:
        for block in BLOCK.finditer(text):
            above = "\n" * text.count("\n", 0, block.start(1))  # so that an error names the line of the page
            exec(compile(above + block[1], str(page), "exec"), names)
    finally:
        for node in [value for value in names.values() if isinstance(value, a3m.Node)]:
            node.close(timeout=0)
    # A comment that shows what is printed shows it truly; "..." stands for anything.
    printed = capsys.readouterr().out
    for shown in re.findall(r"^ *print\(.*\)  # (.*)$", text, flags=re.MULTILINE):
        assert re.search(".*".join(map(re.escape, shown.split("..."))), printed), shown


def test_the_pattern_that_is_explained_is_the_example() -> None:
    example = (DOCS.parent / "examples" / "survey.py").read_text(encoding="utf-8")
    page = (DOCS / "patterns.md").read_text(encoding="utf-8")
    blocks = [block for block in BLOCK.findall(page) if "class Surveyor" in block or "class Respondent" in block]
    assert len(blocks) == 2
    assert all(block in example for block in blocks)


@pytest.mark.parametrize("package", [a3m, exon], ids=lambda package: str(package.__name__))
def test_every_public_name_is_in_the_reference(package: Any) -> None:
    described = re.findall(rf"^\| `{package.__name__}\.(\w+)` \| \S", reference(), flags=re.MULTILINE)
    assert sorted(described) == sorted(package.__all__)


def reference() -> str:
    return (DOCS / "reference.md").read_text(encoding="utf-8")
