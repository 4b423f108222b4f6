"""Blocks of Markdown pages that are written from a stored run, and say from which.

    <!-- table:h200 run=20261129T160312Z-0a1b2c3d4e impl=cublas,decompose_k_best cache=cold tag=quick -->
    ...
    <!-- /table:h200 -->

The first word says what to write, `table`, `claims` or `static`; the word behind the colon names the machine that it
is about. Without `run` a block says that nothing was measured yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gemmgate.suite.errors import unknown
from gemmgate.suite.records import Run
from gemmgate.suite.report import claims_table, markdown_summary, show

_BLOCK = re.compile(
    r"<!-- (?P<kind>\w+):(?P<name>[\w-]+)(?P<options>( \w+=\S+)*) -->\n(?P<text>.*?)<!-- /(?P=kind):(?P=name) -->",
    re.DOTALL,
)
_OPTIONS = ("run", "impl", "cache", "tag")
_KINDS = ("table", "claims", "static")
Load = Callable[[str], Run]


@dataclass(frozen=True)
class Block:
    """One block as it stands in a page."""

    kind: str
    name: str
    options: Mapping[str, str]
    text: str

    @property
    def run(self) -> str:
        return self.options.get("run", "")


def find(root: Path) -> list[Path]:
    """The README and the pages of `docs` that have a block."""
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return [page for page in pages if page.is_file() and _BLOCK.search(page.read_text(encoding="utf-8"))]


def blocks(page: str) -> list[Block]:
    """The blocks of a page's text. Raises `UsageError` for a kind or an option that does not exist."""
    return [_block(found) for found in _BLOCK.finditer(page)]


def rewritten(page: str, load: Load, runs: Mapping[str, str]) -> str:
    """A page's text with every block written anew; `runs` names new runs for blocks by their name."""

    def fresh(found: re.Match[str]) -> str:
        block = _block(found)
        if block.name in runs:
            block = replace(block, options={"run": runs[block.name], **_without_run(block.options)})
        said = "".join(f" {name}={value}" for name, value in block.options.items())
        return f"<!-- {block.kind}:{block.name}{said} -->\n{rendered(block, load)}<!-- /{block.kind}:{block.name} -->"

    return _BLOCK.sub(fresh, page)


def rendered(block: Block, load: Load) -> str:
    """What belongs between the markers of a block."""
    run = load(block.run) if block.run else None
    cache = block.options.get("cache", "cold")
    if block.kind == "claims":
        return f"\n{claims_table(run, cache)}\n"
    if run is None:
        return "\nNot measured yet.\n\n"
    if block.kind == "static":
        return f"\n{show(run, 'markdown')}\n"
    tags = set(filter(None, block.options.get("tag", "").split(",")))
    shown = replace(run, rows=tuple(row for row in run.rows if not tags or tags & set(row.tags)))
    names = tuple(filter(None, block.options.get("impl", "").split(",")))
    return f"\n{markdown_summary(shown, names, cache)}\n"


def _without_run(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if name != "run"}


def _block(found: re.Match[str]) -> Block:
    if found["kind"] not in _KINDS:
        raise unknown("kind of block", found["kind"], _KINDS)
    options = dict(word.split("=", 1) for word in found["options"].split())
    for name in options:
        if name not in _OPTIONS:
            raise unknown(f"option of block {found['kind']}:{found['name']}", name, _OPTIONS)
    return Block(found["kind"], found["name"], options, found["text"])
