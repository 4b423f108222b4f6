"""What a dispatcher's choices bring and cost, as a page shows it: a made run, its numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from gemmgate.suite import pages
from gemmgate.suite.errors import UsageError
from gemmgate.suite.records import Row, Run
from tests.runs import LIMITS, row, run

BLOCK = (
    "<!-- choices:x run=a family=made impl=dispatch,rounded,library cache=serving then=after picture=map.svg -->\n"
    "<!-- /choices:x -->"
)


def _case(
    shape: str,
    n: int,
    t: int,
    times_us: dict[str, float],
    pick: str,
    tags: tuple[str, ...] = (),
    family: str = "made",
) -> list[Row]:
    """Rows of one case; `dispatch` and `rival` say that `pick` and `library` ran."""
    said = {"dispatch": f"{pick} (tuned)", "rival": "library (by hand)"}
    return [
        row(
            name,
            time_us * 1e-6,
            family=family,
            case=f"{shape}-t{t}-bf16",
            dims={"t": t, "n": n, "k": 512},
            tags=tags,
            cache="serving",
            visit=f"{family}-{shape}-{t}",
            yardstick="rounded",
            roof_s=1e-6,
            algorithm=said.get(name, "one launch"),
            decision={"agree": 0.75 if t == 1 else 1.0, "moved": 0.25} if name != "rival" else None,
        )
        for name, time_us in times_us.items()
    ]


def _run() -> Run:
    """Three shapes at three T: `few` costs 2 us, the library 4 and rounded 8, but at T = 64 `few` costs 16."""
    rows: list[Row] = []
    for shape, n in (("a", 8), ("b", 128), ("d", 64)):
        tags = ("drawn",) if shape == "d" else ()
        for t in (1, 16, 64):
            few = 16.0 if t == 64 else 2.0
            own = {1: 2.0, 16: 4.0, 64: 4.0}[t]  # at 16 it takes the library, which costs a factor of 2
            times = {"rounded": 8.0, "library": 4.0, "few": few, "dispatch": own, "rival": 1.0}
            rows += _case(shape, n, t, times, "few" if t == 1 else "library", tags)
    rows += _case("a", 8, 1, {"eager": 9.0, "fused": 3.5}, "", family="after")
    return replace(run(limits=replace(LIMITS, launch_floor_s=0.5e-6)), rows=tuple(rows))


def test_page_of_choices() -> None:
    """Ratios, regret, fallbacks, times by shape, decisions and what follows are those worked out by hand."""
    page = pages.rewritten(BLOCK, lambda block: _run(), {})
    assert "\n![What was chosen where, and what it cost](map.svg)\n" in page
    for line in (
        # T = 1 and 16 of two shapes: 8/2, 8/4, twice; the best of both calls 4/2 and 4/4; regret 1, 2, 1, 2.
        "| t \\<= 16 | 4 of 2 shapes | 2.828 (4) | 1.414 (4) | 1.414 (4) | 1.000 | 2 | 1.4142 | 2.000 a-t16-bf16 |",
        "| t > 16 | 2 of 2 shapes | 2.000 (2) | 1.000 (2) | 1.000 (2) | 1.000 | 2 | 1.0000 | 1.000 a-t64-bf16 |",
        "| drawn, t \\<= 16 | 2 of 1 shape | 2.828 (2) | 1.414 (2) | 1.414 (2) | 1.000 | 1 | 1.4142 | 2.000 d",
        "| b-bf16 | 2.00 (4.00x; 1.50) | 4.00 (2.00x; 1.50) | 4.00 (2.00x; 1.50) |",
        # One token of 81 with 0.75, the others with 1.
        "| a-bf16 | 0.9969 (2.5e-01) | 0.9969 (2.5e-01) | 0.9969 (2.5e-01) |",
        "| a-t1-bf16 | 9.00 | 3.50 | 1.50 |",
    ):
        assert line in page, line
    assert pages.rewritten(page, lambda block: _run(), {}) == page


def test_parts_of_a_page() -> None:
    """A block may show the sums alone; what is no part, and a dispatcher that was not measured, are errors."""
    page = pages.rewritten(BLOCK.replace("impl=", "parts=sums impl="), lambda block: _run(), {})
    assert "| t > 16 | 2 of 2 shapes |" in page and "Share of tokens" not in page and "b-bf16" not in page
    for old, new, said in (("impl=", "parts=all impl=", "'all'"), ("impl=dispatch", "impl=dispatsh", "dispatch")):
        with pytest.raises(UsageError, match=said):
            pages.rewritten(BLOCK.replace(old, new), lambda block: _run(), {})


def test_map_of_choices() -> None:
    """The map has a cell for each case, in the order of their sizes, in the colour of what ran, and a dot with the cost
    where something else that could be chosen was faster: neither the dispatcher's rival nor itself.
    """
    svg = ElementTree.fromstring(pages.pictures(BLOCK, lambda block: _run())["map.svg"])
    space = "{http://www.w3.org/2000/svg}"
    cells = [rect for rect in svg.iter(f"{space}rect") if rect.find(f"{space}title") is not None]
    assert len(cells) == 9
    assert len({cell.get("fill") for cell in cells}) == 2
    assert len(list(svg.iter(f"{space}circle"))) == 3
    said = [text.text or "" for text in svg.iter(f"{space}text")]
    assert said.count("2.00") == 3
    assert [text for text in said if "k512" in text] == [
        "a-bf16: n8 k512 bf16",
        "d-bf16: n64 k512 bf16",
        "b-bf16: n128 k512 bf16",
    ]
    assert "rival" not in said


def test_what_was_not_timed_by_itself_has_no_regret() -> None:
    """A shape on which what the dispatcher chose was not timed beside it counts in ratios, and in no regret; the map
    shows no dot on it, since what was fastest is not known.
    """
    rows = [one for one in _run().rows if not ("drawn" in one.tags and one.implementation == "few")]
    page = pages.rewritten(BLOCK, lambda block: replace(_run(), rows=tuple(rows)), {})
    # Of d, `library` was timed, which is what ran at 16 tokens: nothing faster is known then.
    assert "| drawn, t \\<= 16 | 2 of 1 shape | 2.828 (2) | 1.414 (2) | 1.414 (2) | 1.000 | 1 | 1.0000 | " in page
    rows = [replace(one, algorithm="few (tuned)") if one.implementation == "dispatch" else one for one in rows]
    page = pages.rewritten(BLOCK, lambda block: replace(_run(), rows=tuple(rows)), {})
    assert "| drawn, t \\<= 16 | 2 of 1 shape | 2.828 (2) | 1.414 (2) | 1.414 (2) | 1.000 | 0 | - | - |" in page
    svg = ElementTree.fromstring(pages.pictures(BLOCK, lambda block: replace(_run(), rows=tuple(rows)))["map.svg"])
    assert len(list(svg.iter("{http://www.w3.org/2000/svg}circle"))) == 2


def test_the_map_is_as_wide_as_its_title() -> None:
    """No text of the picture ends beyond its edge, taking 9 units a letter of the title and 7 of the others."""
    svg = ElementTree.fromstring(pages.pictures(BLOCK, lambda block: _run())["map.svg"])
    for text in svg.iter("{http://www.w3.org/2000/svg}text"):
        letters = (9 if text.get("font-weight") else 7) * len(text.text or "")
        x, width = float(text.get("x") or 0), float(svg.get("width") or 0)
        assert text.get("text-anchor") != "end" or x - letters >= 0
        assert text.get("text-anchor") in ("end", "middle") or x + letters <= width


def test_choices_need_a_family_and_names() -> None:
    """A block without a family says what it needs."""
    with pytest.raises(UsageError, match=r"choices:x needs family=.* impl=DISPATCHER"):
        pages.blocks("<!-- choices:x run=a impl=dispatch -->\n<!-- /choices:x -->")
