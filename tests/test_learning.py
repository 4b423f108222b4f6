"""Learning from stored times: on made runs whose best rule is known."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from gemmgate.suite.errors import UnreadableError, UsageError
from gemmgate.suite.learning.fit import Learned, learn
from gemmgate.suite.learning.points import Point, collect
from gemmgate.suite.learning.score import by_first_size, score, summed
from gemmgate.suite.learning.tree import Leaf, Split, Tree, described, to_python
from gemmgate.suite.report.dispatch_map import tree_map
from gemmgate.suite.report.learning import said_of_held_out
from tests.learnable import EXPERTS, HIDDEN, TOKENS, best_of, rows_of, times_of
from tests.runs import row


@pytest.fixture(scope="module")
def learned() -> Learned:
    """The tree of the made rule."""
    return learn("made", collect(rows_of(), "made"))


def _words(point: Point) -> dict[str, str]:
    return dict(point.words)


# points


def test_points_hold_what_was_right() -> None:
    """A point has the times of its visit's ok rows, sizes, words and the yardstick; other families are left out."""
    place = {"family": "made", "case": "t1-n32-k1024-bf16", "visit": "1-32-1024", "cache": "serving"}
    broken = row("bad", None, status="broken", **place)
    points = collect([*rows_of(), broken, row()], "made")
    assert len(points) == len(TOKENS) * len(EXPERTS) * len(HIDDEN)
    (first,) = [point for point in points if point.case == "t1-n32-k1024-bf16"]
    assert dict(first.times_s) == {"few": 4e-6, "library": 5e-6, "some": 8e-6}
    assert (first.best, first.yardstick, first.group) == ("few", "library", (32, 1024))
    assert first.regret("some") == 2.0
    assert math.isinf(first.regret("bad"))
    assert first.words["dtype"] == "bf16" and first.words["machine"] == "nvidia-h200-141g-700w"


def test_times_of_two_visits_are_not_mixed() -> None:
    """Of two visits of a case the one with more implementations counts, whole."""
    place = {"family": "made", "case": "t1-n32-k1024-bf16", "visit": "other", "cache": "serving", "seed": 7}
    alone = row("few", 1e-6, **place, dims={"t": 1, "n": 32, "k": 1024})
    (point,) = [point for point in collect([*rows_of(), alone], "made") if point.case == "t1-n32-k1024-bf16"]
    assert point.times_s["few"] == 4e-6


def test_cache_state_is_the_usual_one() -> None:
    """Without a word the state with most rows counts, and with as many of each, serving."""
    cold = rows_of(lambda t, n: dict.fromkeys(times_of(t, n), 9e-6), cache="cold")
    usual, asked = (collect([*cold, *rows_of()], "made", cache) for cache in ("", "cold"))
    assert {round(point.regret("library"), 6) for point in usual} == {1.0, 1.25, 2.0}
    assert {point.regret("library") for point in asked} == {1.0}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"family": "other"}, "No family with times matches 'other'"),
        ({"cache": "hot"}, "No cache state matches 'hot'.*serving"),
        ({"among": ("fex",)}, "No implementation with times matches 'fex'.*Did you mean few"),
        ({"hold_out": ("m",)}, "No size matches 'm'"),
    ],
)
def test_unknown_names_are_answered(options: dict[str, Any], said: str) -> None:
    """A family, cache state, implementation or size that the rows do not have is answered with those they have."""
    with pytest.raises(UsageError, match=said):
        collect(rows_of(), **{"family": "made", **options})


def test_too_few_cases_are_refused() -> None:
    """Seven cases in six groups are too few, and the sentence says how many there are and how many it takes."""
    few = [r for r in rows_of(tokens=(1, 2), experts=(32,)) if r.dims["t"] == 1 or r.dims["k"] == 1024]
    with pytest.raises(UsageError, match=r"7 cases of made, serving,.* 6 groups.*takes 8 cases in 3 groups"):
        collect(few, "made")


# scores


def test_regret_by_hand() -> None:
    """Always the library: it loses factors of 1.25, 1.25, 2 and 1 on four cases, whose geometric mean is the regret."""
    points = [p for p in collect(rows_of(), "made") if p.dims["k"] == 1024 and p.dims["t"] in (1, 512)]
    wanted = [p for p in points if p.dims["n"] in (32, 512)]
    scored = score(wanted, lambda _: ("library", False))
    assert [one.regret for one in scored] == pytest.approx([1.25, 1.25, 2.0, 1.0])
    assert summed(scored).mean == pytest.approx(3.125**0.25)
    assert summed(scored).worst == pytest.approx(2.0)
    assert {size: regret.mean for size, regret in by_first_size(scored).items()} == pytest.approx(
        {1: 1.25, 512: 2.0**0.5}
    )


def test_what_was_not_ok_costs_the_slowest() -> None:
    """A choice that has no time on a case costs what the slowest there does."""
    point = collect(rows_of(), "made")[0]
    assert score([point], lambda _: ("absent", False))[0].regret == 2.0


# trees


def test_known_rule_is_found(learned: Learned) -> None:
    """On held-out experts and hidden sizes the tree loses nothing; it has two splits, at the rule's own numbers."""
    assert learned.inside.mean == learned.inside.worst == 1.0
    assert learned.tree.depth == 2
    for point in learned.points:
        assert learned.tree.choose(point.dims, point.words) == best_of(point.dims["t"], point.dims["n"])


def test_noise_does_not_deepen_the_tree() -> None:
    """Two implementations that differ by a thousandth make no rule: one is always chosen."""
    found = learn("made", collect(rows_of(lambda t, n: {"a": 5e-6, "library": 5.0005e-6 + 1e-9 * (t % 3)}), "made"))
    assert found.tree.depth == 0
    assert found.tree.leaves() == [Leaf("a", 300, 1.0)]


def test_small_losses_do_not_count_as_mistakes() -> None:
    """What loses 1 % on most cases and wins by half on few is chosen on all, where the tree may not split."""
    points = collect(rows_of(lambda t, n: {"even": 4.04e-6, "library": 4e-6 if t > 4 else 8e-6}), "made")
    assert learn("made", points, depth=0).tree.leaves()[0].implementation == "even"


def test_refuses_beyond_what_was_seen(learned: Learned) -> None:
    """More tokens, fewer experts, another dtype or machine than was measured: no choice."""
    words = _words(learned.points[0])
    seen = {"t": 16, "n": 128, "k": 4096}
    assert learned.tree.choose(seen, words) == "few"
    for other in ({"t": 513}, {"n": 31}, {"k": 6145}, {"k": 1023}):
        assert learned.tree.choose({**seen, **other}, words) is None
    for word in ({"dtype": "fp32"}, {"machine": "nvidia-b200"}):
        assert learned.tree.choose(seen, {**words, **word}) is None


def test_held_out_ends_are_refused_and_counted(learned: Learned) -> None:
    """Groups whose experts lie at an end are only refused where all of that end were held out: none here."""
    assert learned.refused == 0
    alone = learn("made", [p for p in learned.points if p.dims["n"] != 512 or p.dims["k"] == 1024])
    assert alone.refused == len(TOKENS)
    assert {one.chosen for one in alone.held_out if one.fell_back} == {"library"}
    assert alone.everywhere.mean > alone.inside.mean == 1.0


def test_unsupported_implementation_is_not_chosen() -> None:
    """One that is fastest where it runs but has no time on some case of a leaf is not that leaf's choice."""

    def times(t: int, n: int) -> dict[str, float]:
        return {"library": 5e-6, "slow": 6e-6, **({"picky": 1e-6} if n != 128 else {})}

    points = collect(rows_of(times), "made")
    assert learn("made", points, depth=0).tree.leaves()[0].implementation == "library"
    found = learn("made", points)
    assert all(found.tree.choose(p.dims, p.words) == ("library" if p.dims["n"] == 128 else "picky") for p in points)


def test_words_can_decide() -> None:
    """Where dtype alone decides, the tree splits at it, and says so."""
    half = rows_of(lambda t, n: {"a": 4e-6, "library": 8e-6})
    full = rows_of(lambda t, n: {"a": 8e-6, "library": 4e-6}, dtype="fp32")
    full = [replace(r, case=r.case.replace("bf16", "fp32"), visit=r.visit + "f") for r in full]
    tree = learn("made", collect([*half, *full], "made")).tree
    assert described(tree) == [
        'dtype == "bf16"',
        "  a (300 cases, regret 1.000)",
        "else",
        "  library (300 cases, regret 1.000)",
    ]


# what comes out


def test_python_function_is_the_tree(learned: Learned) -> None:
    """The written function chooses as the tree does, on a grid inside and outside, and needs no import."""
    source = to_python(learned.tree, ("Where from.",))
    assert "import" not in source
    space: dict[str, Any] = {}
    exec(source, space)
    words = _words(learned.points[0])
    for t, n, k in itertools.product((1, 3, 8, 9, 17, 511, 512, 600), (16, 32, 33, 100, 512), (1024, 7168)):
        expected = learned.tree.choose({"t": t, "n": n, "k": k}, words) or "library"
        assert space["choose"](t=t, n=n, k=k, **words) == expected


def test_json_gives_the_tree_back(learned: Learned) -> None:
    """A tree survives JSON; another schema or a missing field is answered."""
    data = json.loads(json.dumps(learned.tree.to_json()))
    assert Tree.from_json(data) == learned.tree
    assert Tree.from_json(data).to_json() == learned.tree.to_json()
    with pytest.raises(UnreadableError, match="schema is 99"):
        Tree.from_json({**data, "schema": 99})
    with pytest.raises(UnreadableError, match="damaged"):
        Tree.from_json({**data, "tree": {"name": "t"}})


def test_split_points_by_brute_force(learned: Learned) -> None:
    """Ranges of T for 96 experts give the choice at each T from 1 to 512, boundaries included."""
    words = _words(learned.points[0])
    ranges = learned.tree.split_points({"t": 1, "n": 96, "k": 2048}, words, "t")
    assert ranges[-1][0] == 512
    for t in range(1, 513):
        within = next(name for end, name in ranges if t <= end)
        assert within == learned.tree.choose({"t": t, "n": 96, "k": 2048}, words)
    assert all(one[1] != other[1] for one, other in itertools.pairwise(ranges))
    assert learned.tree.split_points({"t": 1, "n": 9999, "k": 2048}, words, "t") == []


def test_split_points_of_a_product() -> None:
    """With t * n <= 1000 as the only split, 300 experts are cut at 3 tokens."""
    root = Split("t*n", 1000, "", Leaf("a", 1, 1.0), Leaf("b", 1, 1.0))
    tree = Tree("made", root, {"t": (1, 64), "n": (8, 512)}, {}, "b")
    assert tree.split_points({"t": 1, "n": 300}, {}, "t") == [(3, "a"), (64, "b")]


def test_map_is_a_picture(learned: Learned) -> None:
    """The map is well-formed, with a cell for each case and a colour for each implementation that is chosen."""
    root = ElementTree.fromstring(tree_map(learned.points, learned.tree))
    space = "{http://www.w3.org/2000/svg}"
    cells = [rect for rect in root.iter(f"{space}rect") if rect.find(f"{space}title") is not None]
    assert len(cells) == len(learned.points)
    assert len({cell.get("fill") for cell in cells}) == 3
    assert not list(root.iter(f"{space}circle"))


def test_map_shows_what_a_choice_costs(learned: Learned) -> None:
    """A tree that always takes the library has a dot in each cell where something else is faster."""
    tree = learn("made", learned.points, depth=0).tree
    root = ElementTree.fromstring(tree_map(learned.points, tree))
    dots = list(root.iter("{http://www.w3.org/2000/svg}circle"))
    chosen = tree.leaves()[0].implementation
    assert len(dots) == sum(point.best != chosen for point in learned.points)


def test_nothing_within_the_others_is_said() -> None:
    """Where every group is an end of what is known, the function does not claim a regret of 1."""
    ends = [point for point in collect(rows_of(), "made") if point.dims["k"] in (HIDDEN[0], HIDDEN[-1])]
    learned = learn("made", [replace(point, group=(point.dims["k"],)) for point in ends])
    assert learned.inside.cases == 0
    assert "nobody knows" in said_of_held_out(learned)


def test_what_is_said_counts_the_refused() -> None:
    """The sentence of the exports has the regret with the refused cases too, and how many they are."""
    points = [p for p in collect(rows_of(), "made") if p.dims["n"] != 512 or p.dims["k"] == 1024]
    alone = learn("made", points)
    assert f"With the 10 of {len(points)} that were refused" in said_of_held_out(alone)
    assert f"{alone.everywhere.mean:.4f}, worst" in said_of_held_out(alone)
