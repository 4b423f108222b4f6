"""Growing a tree from points, and scoring it on shapes that it has not seen.

What is learned is not which implementation won but by how much the others lost: a leaf predicts for each one the mean
logarithm of its time over the best one's, and takes the least. So two that are as good as each other are no mistake,
and a wrong choice costs what it costs. The depth is the one whose trees cost least on groups of sizes that they did not
see; among depths that are as good, the least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmgate.suite.errors import CannotMeasureError
from gemmgate.suite.learning.points import Point
from gemmgate.suite.learning.score import Regret, Scored, score, summed
from gemmgate.suite.learning.tree import Leaf, Split, Tree, kind_of, size_of

DEPTHS = range(9)
FOLDS = 10
AS_GOOD = 1.001
"""Mean regrets within this factor count as equal: the times themselves are not known better."""
FEWEST_IN_LEAF = 2
_WORST_LOG = math.log(4.0)
"""Beyond this a loss is a loss: one implementation that is 100 times slower should not decide where to split. What was
not ok is taken to be that slow."""


@dataclass(frozen=True)
class Learned:
    """A tree, and how trees of its depth do on groups that were held out.

    `held_out` has one entry a case: chosen by the tree that did not see the case's group. `by_depth` is the mean regret
    of each depth over those that were not beyond what the tree had seen. `depth` is the one that was grown; splits that
    came to nothing may have left the tree flatter.
    """

    tree: Tree
    points: tuple[Point, ...]
    held_out: tuple[Scored, ...]
    by_depth: dict[int, float]
    depth: int

    @property
    def inside(self) -> Regret:
        """On held-out cases that lie within the sizes seen."""
        return summed([one for one in self.held_out if not one.fell_back])

    @property
    def everywhere(self) -> Regret:
        """On all held-out cases, with the yardstick where the tree refused."""
        return summed(self.held_out)

    @property
    def refused(self) -> int:
        return sum(one.fell_back for one in self.held_out)


@dataclass(frozen=True)
class Features:
    """Columns to split at: sizes (as logarithms), products of sizes, and words (1 where a point has that word)."""

    sizes: tuple[str, ...]
    words: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, points: Sequence[Point]) -> Features:
        """Only what varies among the points."""
        dims = tuple(points[0].dims)
        products = ["*".join(some) for count in range(2, len(dims) + 1) for some in combinations(dims, count)]
        sizes = [name for name in (*dims, *products) if len({size_of(name, point.dims) for point in points}) > 1]
        seen = {name: sorted({point.words[name] for point in points}) for name in points[0].words}
        # Of two words one says it all.
        words = [(name, word) for name, found in seen.items() for word in (found if len(found) > 2 else found[:-1])]
        return cls(tuple(sizes), tuple(words))

    def matrix(self, points: Sequence[Point]) -> NDArray[np.float64]:
        """[points, columns]"""
        rows = [
            [math.log2(size_of(name, point.dims)) for name in self.sizes]
            + [float(point.words[name] == word) for name, word in self.words]
            for point in points
        ]
        return np.asarray(rows, dtype=np.float64)


def learn(family: str, points: Sequence[Point], depth: int | None = None) -> Learned:
    """A tree of the depth that does best on held-out groups, or of the one given, grown on all points."""
    folds = _folds(points)
    held: dict[int, list[Scored]] = {}
    for tried in DEPTHS if depth is None else (depth,):
        held[tried] = []
        for fold in folds:
            tree = grow(family, [point for point in points if point.group not in fold], tried)
            unseen = [point for point in points if point.group in fold]
            held[tried] += score(unseen, lambda point, tree=tree: _choice(tree, point))  # type: ignore[misc]
    by_depth = {tried: summed([s for s in scored if not s.fell_back]).mean for tried, scored in held.items()}
    least = min(by_depth.values())
    chosen = next(tried for tried, mean in by_depth.items() if mean <= least * AS_GOOD)
    return Learned(grow(family, points, chosen), tuple(points), tuple(held[chosen]), by_depth, chosen)


def grow(family: str, points: Sequence[Point], depth: int) -> Tree:
    """A tree of at most this depth over these points."""
    features, names = Features.of(points), sorted({name for point in points for name in point.times_s})
    losses = np.asarray([[_loss(point, name) for name in names] for point in points])
    columns = features.matrix(points)
    fallback = max(sorted({p.yardstick for p in points}), key=lambda name: sum(p.yardstick == name for p in points))
    root: Split | Leaf
    if depth == 0 or not columns.shape[1]:
        root = _leaf(list(range(len(points))), points, names, losses)
    else:
        fitted = _regressor(depth).fit(columns, losses).tree_
        root = _node(fitted, 0, list(range(len(points))), columns, features, points, names, losses)
    dims = points[0].dims
    return Tree(
        family,
        _merged(root),
        {name: (min(p.dims[name] for p in points), max(p.dims[name] for p in points)) for name in dims},
        {name: tuple(sorted({p.words[name] for p in points})) for name in points[0].words},
        fallback,
        {kind_of(p.words): p.yardstick for p in sorted(points, key=lambda point: kind_of(point.words))},
    )


def _choice(tree: Tree, point: Point) -> tuple[str, bool]:
    chosen = tree.choose(point.dims, point.words)
    return (point.yardstick, True) if chosen is None else (chosen, False)


def _folds(points: Sequence[Point]) -> list[set[tuple[object, ...]]]:
    """Groups dealt out in their order, so that neighbours are in different folds."""
    groups = sorted({point.group for point in points}, key=repr)
    return [set(groups[start::FOLDS]) for start in range(min(FOLDS, len(groups)))]


def _loss(point: Point, name: str) -> float:
    return min(math.log(point.regret(name)) if name in point.times_s else _WORST_LOG, _WORST_LOG)


def _regressor(depth: int) -> Any:
    try:
        from sklearn.tree import DecisionTreeRegressor
    except ImportError as error:
        raise CannotMeasureError(
            f"Learning needs scikit-learn, which cannot be imported ({error}): `python -m pip install scikit-learn`."
        ) from error
    return DecisionTreeRegressor(max_depth=depth, min_samples_leaf=FEWEST_IN_LEAF, random_state=0)


def _node(
    fitted: Any,
    index: int,
    held: list[int],
    columns: NDArray[np.float64],
    features: Features,
    points: Sequence[Point],
    names: Sequence[str],
    losses: NDArray[np.float64],
) -> Split | Leaf:
    """The same node in our own terms: thresholds as whole numbers, leaves with what they choose."""
    if fitted.children_left[index] == fitted.children_right[index]:
        return _leaf(held, points, names, losses)
    column, threshold = int(fitted.feature[index]), float(fitted.threshold[index])
    low = [i for i in held if columns[i, column] <= threshold]
    high = [i for i in held if columns[i, column] > threshold]
    left, right = (
        _node(fitted, int(child), part, columns, features, points, names, losses)
        for child, part in ((fitted.children_left[index], low), (fitted.children_right[index], high))
    )
    if column < len(features.sizes):
        name = features.sizes[column]
        # Between two sizes that were seen; in whole numbers, so that the smaller one stays below.
        at = max(math.floor(2.0**threshold), max(size_of(name, points[i].dims) for i in low))
        return Split(name, at, "", left, right)
    name, word = features.words[column - len(features.sizes)]
    return Split(name, 0, word, right, left)


def _leaf(held: Sequence[int], points: Sequence[Point], names: Sequence[str], losses: NDArray[np.float64]) -> Leaf:
    """The one that loses least in the mean among those that were right on every case here, if any was."""
    everywhere = [j for j, name in enumerate(names) if all(name in points[i].times_s for i in held)]
    mean = losses[list(held)].mean(axis=0)
    chosen = min(everywhere or range(len(names)), key=lambda j: mean[j])
    return Leaf(names[chosen], len(held), round(math.exp(float(mean[chosen])), 6))


def _merged(node: Split | Leaf) -> Split | Leaf:
    """Splits whose two sides choose the same are none."""
    if isinstance(node, Leaf):
        return node
    yes, no = _merged(node.yes), _merged(node.no)
    if isinstance(yes, Leaf) and isinstance(no, Leaf) and yes.implementation == no.implementation:
        cases = yes.cases + no.cases
        mean = (yes.cases * math.log(yes.regret) + no.cases * math.log(no.regret)) / cases
        return Leaf(yes.implementation, cases, round(math.exp(mean), 6))
    return Split(node.name, node.at, node.word, yes, no)
