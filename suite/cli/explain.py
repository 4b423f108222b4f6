"""`gemmgate explain`: what is different between two sides of a kernel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from gemmgate.suite import anatomy, explain, profiles
from gemmgate.suite.anatomy import Difference
from gemmgate.suite.cases import Case
from gemmgate.suite.catalog import Selection
from gemmgate.suite.cli import _options, _terminal
from gemmgate.suite.errors import UsageError
from gemmgate.suite.explain import Call, Source
from gemmgate.suite.report import differences, text
from gemmgate.suite.report.layout import Block

ORDER = 66
DEFAULT_TARGET = "sm_90"


class Stage(StrEnum):
    """What can be shown line by line."""

    TTGIR = "ttgir"
    PTX = "ptx"
    SASS = "sass"


class Format(StrEnum):
    """How differences are shown."""

    TABLE = "table"
    JSON = "json"


def command(
    context: typer.Context,
    before: Annotated[str, typer.Argument(metavar="A", help="The earlier side: a commit, or a stored run.")],
    after: Annotated[str, typer.Argument(metavar="B", help="The later side.")],
    case: Annotated[str, typer.Option("--case", help="One case, by its name.")],
    impl: Annotated[str, typer.Option("--impl", help="One implementation.")],
    family: Annotated[str, typer.Option("--family", help="Where several families have such a case.")] = "",
    target: Annotated[
        str, typer.Option("--target", metavar="NAME", help="Only compile, for this GPU: sm_90, h100-nvl, ...")
    ] = "",
    stage: Annotated[Stage | None, typer.Option("--stage", help="Show the changed lines of this stage too.")] = None,
    keep: Annotated[
        Path, typer.Option("--keep", metavar="DIR", help="Where both sides' TTGIR, PTX and SASS are kept.")
    ] = Path("explained"),
    only_recorded: Annotated[
        bool, typer.Option("--recorded", help="Compare what the runs say, and compile nothing.")
    ] = False,
    device: _options.Device = "auto",
    format: Annotated[Format, typer.Option("--format")] = Format.TABLE,
    results: _options.Results = None,
) -> None:
    """Compare two sides of one implementation on one case: what was recorded, and what the code became.

    Compares tile, algorithm, graph nodes, TTGIR, PTX and machine code, registers, spills, resident blocks and
    instructions. Without a GPU, or with --target, kernels are compiled for a GPU that is not here.
    """
    _options.refuse_beside(
        context, {"only_recorded": ("before", "after", "case", "impl", "family", "format", "results")}
    )
    store = _options.store(results)
    sides = explain.source(before, store), explain.source(after, store)
    names = sides[0].name, sides[1].name
    rows = tuple(explain.recorded_row(side, family, case, impl) for side in sides)
    stored: tuple[Difference, ...] = ()
    if rows[0] and rows[1] and sides[0].run and sides[1].run:
        stored = explain.recorded(rows[0], rows[1], (sides[0].run, sides[1].run))
    elif only_recorded:
        raise UsageError("--recorded compares two stored runs, and a commit is none: `gemmgate runs` lists them.")
    code: tuple[Difference, ...] = ()
    calls: tuple[Call, ...] = ()
    if not only_recorded:
        tiles = [row.tile if row else None for row in rows]
        calls = _calls(sides, _case(family, case, impl), impl, device, target, keep, tiles)
        code = (*explain.compared(*calls), *anatomy.differences(calls[0].kernels, calls[1].kernels))
    if format is Format.JSON:
        parts = (("recorded", stored), ("code", code))
        _terminal.put(json.dumps(differences.differences_json(names, parts), indent=1))
    else:
        made: list[Block] = differences.blocks("Recorded", names, stored) if stored else []
        made += differences.blocks("Code", names, code) if code else []
        _terminal.put(text.render(made, width=_terminal.width(), color=_terminal.color()))
    if stage is not None and calls:
        _terminal.put(_diff(stage.value, calls))
    if calls:
        _terminal.say(f"both sides' stages are in {_kept(keep, calls)}.")
        _terminal.say(explain.counters())


def _case(family: str, name: str, implementation: str) -> Case:
    selection = Selection((family,) if family else (), (name,), (implementation,))
    choices = _options.families(None).select(selection)
    if len(choices) > 1:
        raise UsageError(f"'{name}' is {len(choices)} cases: name one, and with --family whose.")
    return choices[0].case


def _calls(
    sides: tuple[Source, Source],
    case: Case,
    implementation: str,
    device: str,
    target: str,
    keep: Path,
    tiles: list[Mapping[str, Any] | None],
) -> tuple[Call, ...]:
    """Both sides, on the GPU that is here or for a target."""
    _options.writable_folder("--keep", keep)
    caches = [_empty(keep / name / "cache") for name in "ab"]
    both = list(zip(sides, caches, tiles, strict=True))
    if not target:
        here = [explain.on_this_device(side, case, implementation, device, at, tile) for side, at, tile in both[:1]]
        if here[0] is not None:
            side, at, tile = both[1]
            other = explain.on_this_device(side, case, implementation, device, at, tile)
            assert other is not None
            return here[0], other
        _terminal.say(f"no GPU is here: compiled for {DEFAULT_TARGET}, nothing launched. --target names another.")
    compile_for = profiles.target(target or DEFAULT_TARGET)
    return tuple(explain.for_target(side, case, implementation, compile_for, at, tile) for side, at, tile in both)


def _empty(folder: Path) -> Path:
    """A folder for one compilation's cache: what an earlier call left there would be taken for this one's."""
    if folder.exists():
        stale = [path for path in folder.rglob("*") if path.is_file()]
        for path in stale:
            path.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def _kept(keep: Path, calls: tuple[Call, ...]) -> Path:
    for name, call in zip("ab", calls, strict=True):
        for kernel in call.kernels:
            for stage, content in kernel.texts.items():
                (keep / name / f"{kernel.name}.{stage}").write_text(content, encoding="utf-8")
    return keep


def _diff(stage: str, calls: tuple[Call, ...]) -> str:
    lines = []
    new = {kernel.name: kernel for kernel in calls[1].kernels}
    for kernel in calls[0].kernels:
        if kernel.name in new and stage in kernel.texts and stage in new[kernel.name].texts:
            changed = anatomy.changed_lines(kernel.texts[stage], new[kernel.name].texts[stage])
            lines += [f"{kernel.name}, {stage}: {'' if changed else 'the same'}", *changed]
    return "\n".join(lines)
