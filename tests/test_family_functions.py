"""Families whose functions raise or return nonsense: their cases say so, and everything else goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gemmgate.suite import offers
from gemmgate.suite.cases import Case, Entry, Family
from gemmgate.suite.catalog import Catalog, Selection, find
from gemmgate.suite.compiling.representative import chosen
from gemmgate.suite.family_functions import FamilyError, guarded, require
from gemmgate.suite.shapes import Shape, make_cases
from gemmgate.suite.store import Store
from gemmgate.suite.workers import Worker
from tests.called import called

SUITES = Path(__file__).parent / "suites_family"
CASE = Case("nonsense", "sound", {"n": 64}, "fp32", "ieee", tags=("quick",))
SAID = {
    "flop-none": "flop returned None, which is not a whole number from 0",
    "flop-nan": "flop returned nan, which",
    "flop-beyond": "flop returned 9223372036854775808, which",
    "flop-raises": "flop raised KeyError: 'flop'. (__init__.py, line ",
    "bytes-negative": "bytes_moved returned -1, which",
    "bytes-text": "bytes_moved returned '12', which",
    "bytes-raises": "bytes_moved raised KeyError: 'bytes'.",
    "bound-nan": "error_bound returned nan, which is not a finite number from 0 on",
    "bound-infinite": "error_bound returned inf, which",
    "bound-text": "error_bound returned 'small', which",
    "bound-negative": "error_bound returned -1.0, which",
    "bound-raises": "error_bound raised KeyError: 'bound'.",
    "dtype-none": "output_dtype returned None, which is not the name of a dtype",
    "dtype-raises": "output_dtype raised KeyError: 'dtype'.",
    "applies-raises": "applies of 'plain' raised IndexError: nobody knows.",
}
"""What is said of each case of the family but one."""


@pytest.fixture(scope="module")
def known() -> Catalog:
    return find([SUITES])


def test_a_worker_names_case_and_function(known: Catalog) -> None:
    """Each case whose family cannot answer is refused in a sentence of its own, and the sound one is not."""
    choices = known.select(Selection(families=("nonsense",)))
    worker = Worker("cpu", suites=[SUITES])
    try:
        pairs = [[choice.case.to_json(), list(choice.implementations)] for choice in choices]
        refusals = worker.ask("supports", 60.0, pairs=pairs)["refusals"]
    finally:
        worker.kill()
    found = {choice.case.name: refusal for choice, (refusal,) in zip(choices, refusals, strict=True)}
    assert found.pop("sound") is None
    assert found.keys() == SAID.keys()
    for name, (code, sentence) in found.items():
        assert code == "family"
        assert sentence.startswith(f"Family 'nonsense', case '{name}': {SAID[name]}")


def test_a_run_measures_the_other_cases(tmp_path: Path) -> None:
    """Cases that fail this way become rows of status `error`, with a reason, and the sound case gets its time."""
    cases = "flop-raises,bytes-text,bound-nan,applies-raises,sound"
    asked = ["--family", "nonsense", "--case", cases, "--device", "cpu", "--suite", str(SUITES)]
    result = called("run", *asked, "--results", str(tmp_path))
    assert result.exit_code == 0
    rows = {row.case: row for row in Store(tmp_path).load("latest").rows}
    sound = rows.pop("sound")
    assert sound.status == "ok" and sound.flop == 2 * 64**3
    assert rows.keys() == {"flop-raises", "bytes-text", "bound-nan", "applies-raises"}
    for name, row in rows.items():
        assert (row.status, row.reason) == ("error", "family")
        assert SAID[name] in row.detail
    assert rows["flop-raises"].flop == 0 and rows["flop-raises"].bytes_moved == 3 * 4 * 64**2


def test_implementations_that_answer_nonsense(tmp_path: Path) -> None:
    """No refusal and no bound is what is none: a result twice too large does not pass for want of a bound."""
    asked = ["--family", "nonsense", "--case", "sound", "--impl", "vague,boundless", "--device", "cpu"]
    assert called("run", *asked, "--suite", str(SUITES), "--results", str(tmp_path)).exit_code == 0
    rows = {row.implementation: row for row in Store(tmp_path).load("latest").rows}
    assert rows["plain"].status == "ok"
    where = "Family 'nonsense', case 'sound': "
    for name, said in (
        ("vague", "supports of 'vague' returned 'no'"),
        ("boundless", "error_bound of 'boundless' returned inf"),
    ):
        assert (rows[name].status, rows[name].reason) == ("error", "family")
        assert rows[name].detail.startswith(where + said)


def test_a_side_offers_all_of_its_cases() -> None:
    """What a gate is told of a side has the cases that fail too, so that their rows say why."""
    request = {"suites": [str(SUITES)], "selections": [Selection(families=("nonsense",)).to_json()]}
    (reply,) = offers.answer(request)
    flop = {offer["case"]["name"]: offer["flop"] for offer in reply["offers"]}
    assert flop.keys() == {"sound", *SAID}
    assert flop["sound"] == 2 * 64**3 and flop["flop-none"] == 0


def test_the_largest_case_is_found_beside_them(known: Catalog) -> None:
    """What stands for a family is a case whose size is known."""
    (choice,) = chosen(known, Selection(families=("nonsense",)))
    assert choice.case.name in {name for name in ("sound", *SAID) if not name.startswith("flop")}


@pytest.mark.parametrize(
    ("m", "said"),
    [
        (1, "make_case raised TypeError: one row is too few."),
        (2, "make_case returned 'a case', which is not one of its cases."),
        (3, "no more than two rows."),
    ],
)
def test_shapes_that_fail_are_left_out(known: Catalog, m: int, said: str) -> None:
    """A shape of which a family cannot make a case is left out with the reason, and the others are measured."""
    only = replace(known, families={name: known.families[name] for name in ("nonsense", "dense_splitk")})
    shapes = [
        Shape(role="nonsense", m=m, n=64, k=64, origin="by hand"),
        Shape(role="dense_splitk", m=16, n=64, k=8192, origin="by hand"),
    ]
    made = make_cases(shapes, only)
    assert [case.family for case in made.cases] == ["dense_splitk"]
    assert any(said in note for note in made.notes)


@pytest.mark.parametrize("name", ["m1-n64-k64-fp32", "m2-n64-k64-fp32"])
def test_a_case_by_its_name_says_who_failed(known: Catalog, name: str) -> None:
    """A case that is asked for by name and that its family fails to make is an error with the function's name."""
    with pytest.raises(FamilyError, match=r"^Family 'nonsense': make_case"):
        known.select(Selection(families=("nonsense",), cases=(name,)))


def test_another_family_may_still_make_it(known: Catalog) -> None:
    """Where one family fails at a name and another makes the case, that case is selected."""
    (choice,) = known.select(Selection(cases=("m1-n64-k8192-bf16",), families=("nonsense", "dense_splitk")))
    assert choice.family.name == "dense_splitk"


def _family(**fields: Any) -> Family:
    sound: dict[str, Any] = {
        "name": "nonsense",
        "runner": "kernel",
        "cases": (CASE,),
        "implementations": (Entry("plain", "product:IMPLEMENTATION"),),
        "yardsticks": ("plain",),
        "flop": lambda case: 1,
        "bytes_moved": lambda case: 1,
        "make_inputs": "",
        "reference": "",
        "error_bound": lambda case: 0.0,
    }
    return Family(**{**sound, **fields})


def test_twins_are_cases_of_the_family() -> None:
    """A twin of another family is refused as no case is."""
    stranger = Case("other", "n1", {"n": 1}, "fp32", "ieee")
    answers: list[Callable[[Case], Any]] = [lambda case: stranger, lambda case: None]
    for answer in answers:
        twin = guarded(_family(twin=answer)).twin
        assert twin is not None
        with pytest.raises(FamilyError, match=r"case 'sound': twin returned .* not one of its cases"):
            twin(CASE)
    require(guarded(_family()), CASE)


@pytest.mark.parametrize(
    "fields",
    [{"flop": None}, {"error_bound": 1e-5}, {"cases": [CASE]}, {"cases": (None,)}, {"implementations": ("plain",)}],
    ids=str,
)
def test_a_family_of_other_things_is_refused(fields: dict[str, Any]) -> None:
    """A family with a field of another kind is refused by that field's name."""
    with pytest.raises(ValueError, match=f"^Family 'nonsense': {next(iter(fields))} is "):
        _family(**fields)


@pytest.mark.parametrize(
    "fields",
    [{"name": None}, {"tags": "quick"}, {"tags": ("quick", None)}, {"dims": {"n": "64"}}, {"origin": None}],
    ids=str,
)
def test_a_case_of_other_things_is_refused(fields: dict[str, Any]) -> None:
    """A case with a field of another kind is refused by that field's name."""
    sound = {"family": "nonsense", "name": "sound", "dims": {"n": 64}, "dtype": "fp32", "precision": "ieee"}
    with pytest.raises(ValueError, match=f": {next(iter(fields))} (is|are) "):
        Case(**{**sound, **fields})
