"""A function in somebody's file as an implementation of a family, with nothing to write for the harness.

`write_suite` makes a folder for `--suite` whose one package extends the family by that function's name. What
the name means is `implementation`, which runs the file: only a worker does that.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from functools import partial, wraps
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from gemmgate.suite.cases import Call, Case, Implementation, Inputs, Prepared, Target, Tile
from gemmgate.suite.errors import UsageError, unknown
from gemmgate.suite.measure.first_call import no_gpu, seen_to
from gemmgate.suite.measure.refusal import one_line

_PACKAGE = "outside"
_INIT = '''"""Extends a family by one function of {file}."""

from gemmgate.suite.cases import Entry, Extension

EXTENSION = Extension({family!r}, (Entry({name!r}, "function:IMPLEMENTATION"),))
'''
_FUNCTION = '''"""The function itself."""

from gemmgate.suite.outside import implementation

IMPLEMENTATION = implementation({name!r}, {file!r}, {attribute!r}, deterministic={deterministic!r})
'''


def write_suite(folder: Path, family: str, name: str, file: Path, attribute: str, *, deterministic: bool) -> Path:
    """A suite, below `folder`, in which `family` has one implementation more: `attribute` of `file`, called `name`."""
    package = folder / "suite" / _PACKAGE
    package.mkdir(parents=True)
    said = {"family": family, "name": name, "file": str(file.resolve()), "attribute": attribute}
    for module, text in (("__init__", _INIT), ("function", _FUNCTION)):
        source = text.format(**said, deterministic=deterministic)
        (package / f"{module}.py").write_text(source, encoding="utf-8")
    return package.parent


def implementation(name: str, file: str, attribute: str, *, deterministic: bool) -> Implementation:
    """Runs the file. Raises `UsageError` where it fails, or where what it calls `attribute` is no function to call."""
    function = _function(Path(file), attribute)
    where = f"{Path(file).name}:{attribute}"

    def prepare(case: Case, example: Inputs, target: Target, tile: Tile | None) -> Prepared:
        return Prepared(_first_seen_to(_binder(function, where, case, example), target), algorithm=where)

    return Implementation(name, "own", deterministic, lambda case, target: None, prepare)


def _first_seen_to(bind: Callable[[Inputs], Call], target: Target) -> Callable[[Inputs], Call]:
    """The call that is bound first, which compiles and which nobody times, tells why it could not be judged.

    What it returns is looked at.
    """
    from gemmgate.suite.measure import returned  # torch: only a worker comes here

    is_first = iter([True])

    def bound(inputs: Inputs) -> Call:
        call = bind(inputs)
        if not next(is_first, False):
            return call

        def first() -> Any:
            with seen_to(is_gpu=target.is_gpu):
                output = call()
                returned.look(output, inputs)
                return output

        return first

    return bound


def _function(file: Path, attribute: str) -> Callable[..., Any]:
    from gemmgate.suite.measure.settings import Settings  # torch, as above

    before = Settings.read()
    try:
        module = _run(file)
        chosen = Settings.read()
    finally:
        before.put_back()
    found = _callable(file, module, attribute)
    if (chosen.dtype, chosen.device) == (before.dtype, before.device):
        return found

    @wraps(found)
    def with_its_defaults(*args: Any, **kwargs: Any) -> Any:
        # Whoever calls puts back its own.
        chosen.put_back_defaults()
        return found(*args, **kwargs)

    return with_its_defaults


def _callable(file: Path, module: ModuleType, attribute: str) -> Callable[..., Any]:
    try:
        found = attrgetter(attribute)(module)
    except AttributeError as error:
        known = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise unknown(f"function of {file.name}", attribute, known) from error
    if type(found).__name__ in ("JITFunction", "Autotuner", "Heuristics"):
        raise UsageError(
            f"{file.name}:{attribute} is a Triton kernel, which needs a grid and an output: "
            "name the Python function that allocates the output and launches it."
        )
    if not callable(found):
        raise UsageError(f"{file.name}:{attribute} is a {type(found).__name__}, which cannot be called.")
    called: Callable[..., Any] = found
    return called


def _run(file: Path) -> ModuleType:
    """The module of a file, run as Python runs a script: modules beside it come first while it does."""
    folder = str(file.parent)
    free = file.stem.isidentifier() and importlib.util.find_spec(file.stem) is None
    spec = importlib.util.spec_from_file_location(file.stem if free else f"outside_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file.name} is no Python file: its name should end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        if refused := no_gpu(error):
            raise refused from error
        raise UsageError(f"{file.name} cannot be imported: {_said(error, file)}.") from error
    finally:
        # Behind everything else from here on, so that a `statistics.py` there shadows no library's import.
        sys.path.remove(folder)
        sys.path.append(folder)
    return module


def _said(error: BaseException, file: Path) -> str:
    """An exception in one line, with the line of the file that it came from; or with the other file that cannot be."""
    if isinstance(error, SyntaxError):  # its text says file and line already, in its own way
        there = "" if error.filename in (None, str(file)) else f"{Path(error.filename).name}, "
        return f"{type(error).__name__}: {error.msg} ({there}line {error.lineno})"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
    return f"{type(error).__name__}: {one_line(str(error))}{f' (line {lines[-1]})' if lines else ''}"


def _binder(function: Callable[..., Any], where: str, case: Case, example: Inputs) -> Callable[[Inputs], Call]:
    """How the function takes the family's inputs: by their names where it has parameters so called, else in order."""
    names = ", ".join(example)
    try:
        signature = inspect.signature(function)
    except ValueError:  # some builtins have none
        return lambda inputs: partial(function, *inputs.values())
    by_name = set(example) <= set(signature.parameters)

    def bind(inputs: Inputs) -> Call:
        bound = signature.bind(**inputs) if by_name else signature.bind(*inputs.values())
        # In order wherever that is possible: keywords cost host time, which on a CPU is part of a call's.
        return partial(function, *bound.args, **bound.kwargs)

    try:
        bind(example)
    except TypeError as error:
        raise UsageError(
            f"{where} takes {signature}, but family '{case.family}' passes {names}: "
            f"name a function that can be called with ({names}) and returns the result."
        ) from error
    return bind
