"""Blocks of Markdown pages that are written from a stored run, and say from which.

    <!-- table:h200 run=20261129T160312Z-0a1b2c3d4e impl=cublas,decompose_k_best cache=cold tag=quick -->
    ...
    <!-- /table:h200 -->

The first word says what to write: `answer` (whether it is faster, for which shapes, where not) and `table`, of the rows
with a `tag` and a `case` where these are named; `claims`, `goals` or `static` from a run, `choices` from a run (with
`family`, `impl` as the dispatcher and the library's calls behind it, `then` as a family that goes on from there, and
`parts` of `sums,shapes,decisions,then`), `trial`, what `gemmgate try` printed, `calibration` (with
`parts=noise,power`) from a calibration, `tuning` from a tuning, `timers` from a comparison of timers. `choices` and
`timers` have a `picture=<file>.svg`, which is written beside the page. The word behind the colon names the block, or
the machine that it is about. `run` may be several ids with commas between them: of one method and stack, but for
claims, which take of each method what it has. Without it a block says that nothing was measured yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from gemmgate.suite.calibration import calibration
from gemmgate.suite.errors import GemmgateError, UsageError, unknown
from gemmgate.suite.records import Run
from gemmgate.suite.report import (
    choices_map,
    claims_table,
    markdown,
    markdown_answer,
    markdown_choices,
    markdown_summary,
    show,
    show_calibration,
    show_goals,
    show_timers,
    show_tuning,
    timers_picture,
)
from gemmgate.suite.report.measured import where
from gemmgate.suite.report.trial import outcome
from gemmgate.suite.store import Store

_BLOCK = re.compile(
    r"<!-- (?P<kind>\w+):(?P<name>[\w-]+)(?P<options>( \w+=\S+)*) -->\n(?P<text>.*?)<!-- /(?P=kind):(?P=name) -->",
    re.DOTALL,
)
_MARKER = re.compile(r"^<!-- /?[a-z]+:[^\n]*-->", re.MULTILINE)
_OPTIONS = ("run", "impl", "cache", "tag", "case", "parts", "picture", "family", "then")
_KINDS = ("answer", "table", "claims", "goals", "static", "choices", "trial", "calibration", "tuning", "timers")
TRIALS = "trials"
"""Folder of the results in which the trials that pages show are stored: `latest` should not find them elsewhere."""


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


Load = Callable[[Block], Run]


def find(root: Path) -> list[Path]:
    """The README and the pages of `docs` that have a block."""
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return [page for page in pages if page.is_file() and _MARKER.search(page.read_text(encoding="utf-8"))]


def blocks(page: str) -> list[Block]:
    """The blocks of a page's text. Raises `UsageError` for a lone marker, and a kind or option that does not exist."""
    if lone := _MARKER.search(_BLOCK.sub("", page)):
        raise UsageError(f"Marker {lone[0]} belongs to no block: one begins with it and ends with <!-- /kind:name -->.")
    return [_block(found) for found in _BLOCK.finditer(page)]


def store_of(kind: str, store: Store) -> Store:
    """Where the runs of a kind of block are."""
    others = {"trial": Store(store.root / TRIALS), "calibration": store.calibrations}
    others |= {"tuning": store.tunings, "timers": store.timers}
    return others.get(kind, store)


def loader(store: Store) -> Load:
    """The run that a block names."""
    return lambda block: store_of(block.kind, store).load(block.run)


def pictures(page: str, load: Load) -> dict[str, str]:
    """The pictures of a page's blocks as SVG, by the name of their file."""
    named = [block for block in blocks(page) if block.options.get("picture") and block.run]
    return {block.options["picture"]: _picture(block, load(block)) for block in named}


def _picture(block: Block, run: Run) -> str:
    if block.kind == "timers":
        return timers_picture(run)
    return choices_map(run, block.options["family"], _words(block, "impl")[0], block.options.get("cache", "cold"))


def rewritten(page: str, load: Load, runs: Mapping[str, str]) -> str:
    """A page's text with every block written anew; `runs` names new runs for blocks by their name.

    An error names the block that it came from.
    """

    def fresh(found: re.Match[str]) -> str:
        block = _block(found)
        if block.name in runs:
            block = replace(block, options={"run": runs[block.name], **_without_run(block.options)})
        said = "".join(f" {name}={value}" for name, value in block.options.items())
        place = f"{block.kind}:{block.name}"
        try:
            text = rendered(block, load)
        except GemmgateError as error:
            error.add_note(f"Block {place} needs it.")
            raise
        return f"<!-- {place}{said} -->\n{text}<!-- /{place} -->"

    return _BLOCK.sub(fresh, page)


def rendered(block: Block, load: Load) -> str:
    """What belongs between the markers of a block."""
    cache = block.options.get("cache", "cold")
    if block.kind == "claims":  # of several methods, perhaps, which are no one run
        each = [replace(block, options={**block.options, "run": name}) for name in _words(block, "run")]
        return f"\n{claims_table([load(one) for one in each], cache)}\n"
    run = load(block) if block.run else None
    if run is None:
        return "\nNot measured yet.\n\n"
    if block.kind == "goals":
        return f"\n{show_goals(run, 'markdown')}\n"
    if block.kind == "static":
        return f"\n{show(run, 'markdown')}\n"
    if block.kind == "trial":
        return f"\n{_trial(run)}\n"
    if block.kind == "calibration":
        return f"\n{show_calibration(calibration(run), 'markdown', parts=_words(block, 'parts'))}\n"
    picture = block.options.get("picture")
    if block.kind == "tuning":
        return f"\n{show_tuning(run, 'markdown')}\n"
    if block.kind == "timers":
        shown = f"![The table as a picture]({picture})\n\n" if picture else ""
        return f"\n{shown}{show_timers(run, 'markdown')}\n"
    if block.kind == "choices":
        shown = f"![What was chosen where, and what it cost]({picture})\n\n" if picture else ""
        family, then, parts = block.options["family"], block.options.get("then", ""), _words(block, "parts")
        return f"\n{shown}{markdown_choices(run, family, _words(block, 'impl'), cache, then, parts)}\n"
    tags, globs = set(_words(block, "tag")), _words(block, "case")
    tagged = [row for row in run.rows if not tags or tags & set(row.tags)]
    rows = [row for row in tagged if not globs or any(fnmatchcase(row.case, glob) for glob in globs)]
    if run.rows and not rows:
        raise UsageError(f"No row of run {block.run} has the tag and case of block {block.kind}:{block.name}.")
    shown_run = replace(run, rows=tuple(rows))
    write = markdown_answer if block.kind == "answer" else markdown_summary
    return f"\n{write(shown_run, _words(block, 'impl'), cache)}\n"


def _words(block: Block, option: str) -> tuple[str, ...]:
    return tuple(filter(None, block.options.get(option, "").split(",")))


def _trial(run: Run) -> str:
    """The command, what it printed below its table, and where that was."""
    came_to = outcome(run)
    lines = [f"$ {run.command}", *came_to.lines, f"exit code {came_to.exit_code}"]
    printed = "\n".join(f"    {line}" for line in lines)
    return f"{printed}\n\n{markdown.render([where(run)])}"


def _without_run(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if name != "run"}


def _block(found: re.Match[str]) -> Block:
    if found["kind"] not in _KINDS:
        raise unknown("kind of block", found["kind"], _KINDS)
    options = dict(word.split("=", 1) for word in found["options"].split())
    if found["kind"] == "choices" and not {"family", "impl"} <= options.keys():
        raise UsageError(f"Block choices:{found['name']} needs family=... and impl=DISPATCHER,LIBRARY_CALL,...")
    for name in options:
        if name not in _OPTIONS:
            raise unknown(f"option of block {found['kind']}:{found['name']}", name, _OPTIONS)
    return Block(found["kind"], found["name"], options, found["text"])
