"""A child that compiles: imports one side's kernels, has no GPU, and answers requests.

Started as `python -P -m gemmgate.suite.compiling.worker <parent pid> <cache folder>`. One JSON object a line,
requests on standard input, replies on what was standard output. Operations:

    list {selection}                the own implementations selected that launch Triton kernels, case by case
    tuned {items, target}           of their tuned tiles those that stand for the others, and those that are illegal
    tiles {item, target}            the whole tile space of an item
    compile {item, target, tile}    one preparation: the kernels it launched, or the status it has instead

`tile` is `rule` (what is chosen where nothing was tuned), `tuned` (the entry of a table) or a tile.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from triton.runtime import JITFunction

from gemmgate.suite import catalog
from gemmgate.suite.cases import Case, Implementation, Inputs, Target
from gemmgate.suite.catalog import Catalog, Selection
from gemmgate.suite.compiling import driver
from gemmgate.suite.compiling.facts import FactStore
from gemmgate.suite.compiling.instructions import NOT_IMPORTED, NOT_INSTALLED
from gemmgate.suite.compiling.legality import tuned_refusal
from gemmgate.suite.compiling.representative import (
    CHOSEN,
    TUNED,
    Tuned,
    chosen,
    is_representative,
    largest_of,
    tuned_extremes,
    without_variants,
)
from gemmgate.suite.compiling.reproducible import fix_addresses
from gemmgate.suite.compiling.tables import readable, tables_module
from gemmgate.suite.errors import UsageError
from gemmgate.suite.measure.compile_only import meta_inputs
from gemmgate.suite.measure.lifetime import die_with_parent

_GARBAGE = 100_000
"""Objects more before the next search for garbage: of compilations there is little."""


class CompileWorker:
    """Answers until the end of the pipe."""

    def __init__(self, replies: IO[str], store: FactStore) -> None:
        self._replies = replies
        self._recorder = driver.Recorder(store)
        self._catalog = Catalog()
        self._examples: dict[tuple[str, str], Inputs] = {}

    def serve(self, requests: IO[str]) -> None:
        for line in requests:
            request = json.loads(line)
            operation = getattr(self, f"_do_{request.pop('op')}")
            try:
                reply = operation(**request)
            except UsageError as error:
                reply = {"usage": str(error)}
            except Exception as error:
                reply = _status("error", type(error).__name__, str(error))
            self._replies.write(json.dumps(reply) + "\n")
            self._replies.flush()

    def _do_hello(self, suites: Sequence[str]) -> dict[str, Any]:
        self._catalog = catalog.find([Path(suite) for suite in suites])
        kernels = importlib.import_module("gemmgate.kernels").__path__[0]
        return {"kernels_tree": catalog.tree_hash(Path(kernels)), "disassembler": str(driver.disassembler())}

    def _do_list(self, selection: Mapping[str, Any]) -> dict[str, Any]:
        asked = Selection.from_json(selection)
        choices = chosen(self._catalog, asked)
        places: dict[tuple[str, str, str], Case] = {}
        modules: dict[tuple[str, str], str] = {}
        failed: dict[tuple[str, str], tuple[str, str]] = {}
        for choice in choices:
            for name in choice.implementations:
                try:
                    found = self._implementation(choice.family.name, name)
                except ModuleNotFoundError as error:
                    reason = NOT_IMPORTED if _is_ours(error.name or "") else NOT_INSTALLED
                    failed[choice.family.name, name] = reason, str(error)
                    continue
                except Exception as error:
                    failed[choice.family.name, name] = NOT_IMPORTED, f"{type(error).__name__}: {error}"
                    continue
                if found.kind == "own" and launches_triton(found):
                    places[choice.family.name, name, choice.case.name] = choice.case
                    modules[choice.family.name, name] = _module(found)
        kept = without_variants(places, modules, largest_of(choices)) if is_representative(asked) else places
        items = [{"case": places[place].to_json(), "implementation": place[1]} for place in kept]
        return {"items": items, "failed": [[*names, *why] for names, why in failed.items()]}

    def _do_tuned(self, items: Sequence[Mapping[str, Any]], target: Mapping[str, Any]) -> dict[str, Any]:
        device = _target(target)
        names = dict.fromkeys((item["case"]["family"], item["implementation"]) for item in items)
        kept: list[dict[str, Any]] = []
        illegal: list[dict[str, Any]] = []
        for family, name in names:
            known, wrong = readable(self._package(family, name), device)
            entries, of_entries = self._entries(family, name, device, known)
            kept += [{"case": one.case.to_json(), "implementation": name} for one in tuned_extremes(entries)]
            illegal += [{"family": family, "implementation": name, **one} for one in (*wrong, *of_entries)]
            illegal += [one for one in self._of_nobody(family, known) if one not in illegal]
        return {"items": kept, "illegal": illegal}

    def _of_nobody(self, family: str, known: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """Entries of implementations that the family does not have."""
        names = {entry.name for entry in self._catalog.family(family).implementations}
        for key, entry in known.items():
            case_name, separator, name = key.partition("/")
            if not {entry["implementation"], name if separator else entry["implementation"]} <= names:
                name = name or entry["implementation"]
                detail = f"The family has no implementation '{name}'."
                found = {"family": family, "implementation": name, "case": case_name, "tile": entry["tile"]}
                yield {**found, "reason": "implementation", "detail": detail}

    def _entries(
        self, family: str, name: str, target: Target, known: Mapping[str, Mapping[str, Any]]
    ) -> tuple[list[Tuned], list[dict[str, Any]]]:
        """Of a table's entries the tuned tiles of an implementation, and what is wrong with those of no use.

        The best implementation of a case, whose key names none, is looked at where it is this one.
        """
        found = self._implementation(family, name)
        entries, wrong = [], []
        for key, entry in known.items():
            case_name, separator, implementation = key.partition("/")
            if name not in (implementation, "" if separator else entry["implementation"]):
                continue
            case = self._case(family, case_name)
            tile = None if entry["tile"] is None else dict(entry["tile"])
            refusal = tuned_refusal(found, case, target, key, entry)
            if refusal is not None:
                wrong.append({"case": case_name, "tile": tile, "reason": refusal[0], "detail": refusal[1]})
            elif case is not None and tile is not None and separator:
                entries.append(Tuned(case, tile))
        return entries, wrong

    def _case(self, family: str, name: str) -> Case | None:
        known = self._catalog.family(family)
        return next((case for case in known.cases if case.name == name), None) or catalog.case_named(known, name)

    def _do_tiles(self, item: Mapping[str, Any], target: Mapping[str, Any]) -> dict[str, Any]:
        case, found = self._found(item)
        return {"tiles": [dict(tile) for tile in found.tiles(case, _target(target))] if found.tiles else []}

    def _do_compile(self, item: Mapping[str, Any], target: Mapping[str, Any], tile: Any) -> dict[str, Any]:
        case, found = self._found(item)
        device = _target(target)
        explicit = tile if tile not in CHOSEN else None
        if tile == TUNED:
            known, wrong = readable(self._package(case.family, found.name), device)
            if wrong:
                return _status("unsupported", wrong[0]["reason"], wrong[0]["detail"])
            entry = known.get(f"{case.name}/{found.name}")
            if entry is None:
                return {"kernels": None}
            explicit = entry["tile"]
            refused = tuned_refusal(found, case, device, f"{case.name}/{found.name}", entry)
            if refused is not None:
                return {**_status("unsupported", *refused), "tile": explicit}
        refusal = found.supports(case, device)
        if refusal is not None:
            return _status("unsupported", *refusal)
        try:
            with self._recorder.recording(device) as launches, self._without_tables(tile == "rule"):
                prepared = found.prepare(case, self._example(case), device, explicit)
        except driver.NotCompiled as error:
            return {**_status("unsupported", error.reason, error.detail), "tile": explicit}
        except ValueError as error:
            return {**_status("unsupported", "refused", str(error)), "tile": explicit}
        return {
            "kernels": launches,
            "tile": dict(prepared.tile) if prepared.tile else None,
            "device_code": prepared.device_code,
        }

    def _found(self, item: Mapping[str, Any]) -> tuple[Case, Implementation]:
        case = Case.from_json(item["case"])
        return case, self._catalog.implementation_for(case, item["implementation"])

    def _implementation(self, family: str, name: str) -> Implementation:
        found: Implementation = self._catalog.implementation(family, name)
        return found

    def _package(self, family: str, name: str) -> str:
        """Where an implementation's tables lie."""
        return self._catalog.extensions.get((family, name)) or self._catalog.packages[family]

    @contextmanager
    def _without_tables(self, hidden: bool) -> Iterator[None]:
        """Nothing is found in any tuned table, by whatever name a module of kernels knows the two functions."""
        tables = tables_module() if hidden else None
        empty = [(tables.lookup, _no_entry), (tables.ranges, _no_ranges)] if tables else []
        packages = ("gemmgate.kernels", *self._catalog.packages.values(), *self._catalog.extensions.values())
        modules = [module for name, module in sys.modules.items() if name.startswith(packages)] if empty else []
        changed = [
            (module, name, value, instead)
            for module in modules
            for name, value in list(vars(module).items())
            for function, instead in empty
            if value is function
        ]
        try:
            for module, name, _, instead in changed:
                setattr(module, name, instead)
            yield
        finally:
            for module, name, value, _ in changed:
                setattr(module, name, value)

    def _example(self, case: Case) -> Inputs:
        """The family's inputs as meta tensors: dtypes, sizes and strides of the real ones, without values."""
        place = case.family, case.name
        if place not in self._examples:
            make = self._catalog.load(case.family, self._catalog.family(case.family).make_inputs)
            self._examples[place] = meta_inputs(partial(make, case, 0, "cpu", "normal"))
        return self._examples[place]


def launches_triton(implementation: Implementation) -> bool:
    """Whether the module that prepares it reaches a `@triton.jit` function through modules of the same package."""
    return _reaches(_module(implementation))


def _module(implementation: Implementation) -> str:
    """The module that prepares it."""
    function: Any = implementation.prepare
    while isinstance(function, partial):
        function = function.func
    name: str = function.__module__
    return name


@cache
def _reaches(name: str) -> bool:
    seen, waiting = {name}, [name]
    while waiting:
        module = sys.modules[waiting.pop()]
        for value in vars(module).values():
            if isinstance(value, JITFunction):
                return True
            other = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if other in sys.modules and other not in seen and _is_beside(name, str(other)):
                seen.add(str(other))
                waiting.append(str(other))
    return False


def _is_beside(name: str, other: str) -> bool:
    """Whether both are kernels of one package: the first part names it, or two, where the first is ours."""
    parts = 2 if name.startswith("gemmgate.") else 1
    return name.split(".")[:parts] == other.split(".")[:parts]


def _is_ours(module: str) -> bool:
    return module.startswith("gemmgate")  # folders of `--suite` are imported under such a name too


def _no_entry(package: str, key: str, target: Target) -> None:
    return None


def _no_ranges(package: str, key: str, target: Target) -> tuple[()]:
    return ()


def _target(data: Mapping[str, Any]) -> Target:
    return Target(**{**data, "features": tuple(data["features"])})


def _status(status: str, reason: str, detail: str) -> dict[str, Any]:
    return {"status": status, "reason": reason, "detail": detail}


def main() -> None:
    parent, cache_folder = int(sys.argv[1]), Path(sys.argv[2])
    die_with_parent(parent)
    fix_addresses()
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # Searching torch's and Triton's modules for garbage again and again took a fifth of the time.
    gc.freeze()
    gc.set_threshold(_GARBAGE)
    CompileWorker(replies, FactStore(cache_folder)).serve(sys.stdin)


if __name__ == "__main__":
    main()
