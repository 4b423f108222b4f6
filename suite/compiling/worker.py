"""A child that compiles: imports one side's kernels, has no GPU, and answers requests.

Started as `python -P -m gemmgate.suite.compiling.worker <parent pid> <cache folder>`. One JSON object a line,
requests on standard input, replies on what was standard output. Operations:

    list {selection, suites}        the own implementations selected that launch Triton kernels, case by case
    tiles {item, target}            the whole tile space of an item
    compile {item, target, tile}    one preparation: the kernels it launched, or the status it has instead

`tile` is `rule` (what is chosen where nothing was tuned), `tuned` (the entry of a table) or a tile.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from triton.runtime import JITFunction

from gemmgate.suite import catalog
from gemmgate.suite.cases import Case, Implementation, Target
from gemmgate.suite.catalog import Catalog, Selection
from gemmgate.suite.compiling import driver
from gemmgate.suite.compiling.facts import FactStore
from gemmgate.suite.compiling.representative import chosen
from gemmgate.suite.errors import UsageError
from gemmgate.suite.measure.worker import die_with_parent

_TUNED = "gemmgate.kernels._tuned"


class CompileWorker:
    """Answers until the end of the pipe."""

    def __init__(self, replies: IO[str], store: FactStore) -> None:
        self._replies = replies
        self._recorder = driver.Recorder(store)
        self._catalog = Catalog()
        self._examples: dict[tuple[str, str], dict[str, Any]] = {}

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
        items: list[dict[str, Any]] = []
        failed: dict[tuple[str, str], str] = {}
        for choice in chosen(self._catalog, Selection.from_json(selection)):
            for name in choice.implementations:
                try:
                    found = self._implementation(choice.family.name, name)
                except ModuleNotFoundError as error:
                    if _is_ours(error.name or ""):
                        failed[choice.family.name, name] = str(error)
                    continue  # a peer that is not installed
                except Exception as error:
                    failed[choice.family.name, name] = f"{type(error).__name__}: {error}"
                    continue
                if found.kind == "own" and launches_triton(found):
                    items.append({"case": choice.case.to_json(), "implementation": name})
        return {"items": items, "failed": [[*names, detail] for names, detail in failed.items()]}

    def _do_tiles(self, item: Mapping[str, Any], target: Mapping[str, Any]) -> dict[str, Any]:
        case, found = self._found(item)
        return {"tiles": [dict(tile) for tile in found.tiles(case, _target(target))] if found.tiles else []}

    def _do_compile(self, item: Mapping[str, Any], target: Mapping[str, Any], tile: Any) -> dict[str, Any]:
        case, found = self._found(item)
        device = _target(target)
        explicit = self._tuned(case, found.name, device) if tile == "tuned" else tile if tile != "rule" else None
        if tile == "tuned" and explicit is None:
            return {"kernels": None}
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
        return case, self._implementation(case.family, item["implementation"])

    def _implementation(self, family: str, name: str) -> Implementation:
        found: Implementation = self._catalog.implementation(family, name)
        return found

    def _tuned(self, case: Case, name: str, target: Target) -> Mapping[str, Any] | None:
        """The tile of a table's entry; None where no table has one, or these kernels know no tables."""
        package = self._catalog.extensions.get((case.family, name)) or self._catalog.packages[case.family]
        tables = _tables()
        entry = tables.lookup(package, f"{case.name}/{name}", target) if tables else None
        return dict(entry["tile"]) if entry else None

    @contextmanager
    def _without_tables(self, hidden: bool) -> Iterator[None]:
        """Nothing is found in any tuned table, by whatever name a module of kernels knows the two functions."""
        tables = _tables() if hidden else None
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

    def _example(self, case: Case) -> dict[str, Any]:
        """The family's inputs as meta tensors: dtypes, sizes and strides of the real ones, without values."""
        place = case.family, case.name
        if place not in self._examples:
            make = self._catalog.load(case.family, self._catalog.family(case.family).make_inputs)
            try:
                with FakeTensorMode():
                    made = make(case, 0, "cpu", "normal")
            except Exception:
                made = make(case, 0, "cpu", "normal")
            self._examples[place] = {name: _meta(value) for name, value in made.items()}
        return self._examples[place]


def launches_triton(implementation: Implementation) -> bool:
    """Whether the module that prepares it reaches a `@triton.jit` function through modules of the same package."""
    function: Any = implementation.prepare
    while isinstance(function, partial):
        function = function.func
    return _reaches(function.__module__)


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


def _tables() -> Any:
    """The module that reads tuned tables; None among kernels that have none."""
    with suppress(ModuleNotFoundError):
        return importlib.import_module(_TUNED)
    return None


def _no_entry(package: str, key: str, target: Target) -> None:
    return None


def _no_ranges(package: str, key: str, target: Target) -> tuple[()]:
    return ()


def _meta(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    storage = torch.empty(value.untyped_storage().nbytes() // value.element_size(), dtype=value.dtype, device="meta")
    return storage.as_strided(value.size(), value.stride(), value.storage_offset())


def _target(data: Mapping[str, Any]) -> Target:
    return Target(**{**data, "features": tuple(data["features"])})


def _status(status: str, reason: str, detail: str) -> dict[str, Any]:
    return {"status": status, "reason": reason, "detail": detail}


def main() -> None:
    parent, cache_folder = int(sys.argv[1]), Path(sys.argv[2])
    die_with_parent(parent)
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    CompileWorker(replies, FactStore(cache_folder)).serve(sys.stdin)


if __name__ == "__main__":
    main()
