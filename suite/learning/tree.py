"""A decision tree over sizes and words: it chooses an implementation, or refuses where it knows nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gemmgate.suite.errors import UnreadableError

SCHEMA = 1
"""Of the JSON form."""


@dataclass(frozen=True)
class Leaf:
    """What is chosen, on how many cases that rests, and what it cost there in the geometric mean."""

    implementation: str
    cases: int
    regret: float


@dataclass(frozen=True)
class Split:
    """`size <= at` goes to `yes`; or, where `word` is not empty, `name == word`.

    `size` is a dimension or several joined by `*`, whose product counts.
    """

    name: str
    at: int
    word: str
    yes: Split | Leaf
    no: Split | Leaf


@dataclass(frozen=True)
class Tree:
    """`ranges` are the least and the largest of every size that was seen, `words` the words that were.

    Beyond them `choose` says so: then the yardstick is run, since nothing is known. `fallbacks` names it by
    `kind_of` the words; `fallback` is the most usual one, and the only one where `fallbacks` is empty.
    """

    family: str
    root: Split | Leaf
    ranges: Mapping[str, tuple[int, int]] = field(hash=False)
    words: Mapping[str, tuple[str, ...]] = field(hash=False)
    fallback: str
    fallbacks: Mapping[str, str] = field(default_factory=dict, hash=False)

    def choose(self, dims: Mapping[str, int], words: Mapping[str, str]) -> str | None:
        """An implementation, None beyond what was seen."""
        if any(not low <= size_of(name, dims) <= high for name, (low, high) in self.ranges.items()):
            return None
        if any(words[name] not in seen for name, seen in self.words.items()):
            return None
        node = self.root
        while isinstance(node, Split):
            goes = words[node.name] == node.word if node.word else size_of(node.name, dims) <= node.at
            node = node.yes if goes else node.no
        return node.implementation

    @property
    def depth(self) -> int:
        return _depth(self.root)

    def leaves(self) -> list[Leaf]:
        """From left to right."""
        return [node for node in _nodes(self.root) if isinstance(node, Leaf)]

    def split_points(self, dims: Mapping[str, int], words: Mapping[str, str], along: str) -> list[tuple[int, str]]:
        """(end, implementation) for each range of the size `along` with the other sizes as in `dims`, ascending.

        Empty where the other sizes or the words are beyond what was seen. All ends but the last are what
        `register_custom_op_autotuning` takes as `split_points`.
        """
        low, high = self.ranges[along]
        ends = sorted(
            {end for node in _nodes(self.root) if isinstance(node, Split) for end in _ends(node, dims, along)}
        )
        found: list[tuple[int, str]] = []
        for end in (*(end for end in ends if low <= end < high), high):
            choice = self.choose({**dims, along: end}, words)
            if choice is None:
                return []
            if found and found[-1][1] == choice:
                found.pop()
            found.append((end, choice))
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `Tree.from_json` gives it back."""
        return {
            "schema": SCHEMA,
            "family": self.family,
            "fallback": self.fallback,
            "fallbacks": dict(self.fallbacks),
            "ranges": {name: list(ends) for name, ends in self.ranges.items()},
            "words": {name: list(seen) for name, seen in self.words.items()},
            "tree": _node_json(self.root),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Tree:
        """Raises `UnreadableError` where it is no tree of this schema."""
        if data.get("schema") != SCHEMA:
            raise UnreadableError(f"This is no learned tree of schema {SCHEMA}: its schema is {data.get('schema')}.")
        try:
            return cls(
                data["family"],
                _node(data["tree"]),
                {name: (int(low), int(high)) for name, (low, high) in data["ranges"].items()},
                {name: tuple(seen) for name, seen in data["words"].items()},
                data["fallback"],
                dict(data.get("fallbacks", {})),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UnreadableError(f"The learned tree is damaged ({error!r}): learn it again.") from error


def size_of(name: str, dims: Mapping[str, int]) -> int:
    """A dimension, or the product of several: `n*k`."""
    return math.prod(dims[part] for part in name.split("*"))


def kind_of(words: Mapping[str, str]) -> str:
    """The words that decide which yardstick a case has, joined by commas: all but the machine."""
    return ",".join(word for name, word in words.items() if name != "machine")


def to_python(tree: Tree, about: Sequence[str] = ()) -> str:
    """A module with one function, `choose`, that needs nothing but Python."""
    dims = [name for name in tree.ranges if "*" not in name]
    parameters = ", ".join([*(f"{name}: int" for name in dims), *(f"{name}: str" for name in tree.words)])
    known = [f"{low} <= {_spelled(name)} <= {high}" for name, (low, high) in tree.ranges.items() if "*" not in name]
    known += [f"{name} in {tuple(seen)!r}" for name, seen in tree.words.items()]
    lines = [
        '"""Which implementation of a family is fastest, learned from measurements. Written by `gemmgate learn`."""',
        "",
        "",
        f"def choose({parameters}) -> str:",
        f'    """The implementation of `{tree.family}` to run; the yardstick beyond the sizes measured.',
        *([""] if about else []),
        *(f"    {line}" for line in about),
        '    """',
        "    known = (",
        *(f"        {'and ' if index else ''}{text}" for index, text in enumerate(known)),
        "    )",
        "    if not known:",
        *_python_fallback(tree),
        *_python(tree.root, 1),
    ]
    return "\n".join(lines) + "\n"


def _python_fallback(tree: Tree) -> Iterator[str]:
    """The yardstick of the case's own kind; an error for a kind that nobody knows."""
    if not tree.fallbacks:
        yield f'        return "{tree.fallback}"'
        return
    names = [name for name in tree.words if name != "machine"]
    yield "        yardsticks = {"
    for kind, name in tree.fallbacks.items():
        yield f'            "{kind}": "{name}",'
    yield "        }"
    yield f'        kind = ",".join(({", ".join(names)},))'
    yield "        if kind not in yardsticks:"
    yield f"            raise ValueError(f\"{tree.family} has no case of '{{kind}}': no yardstick is known.\")"
    yield "        return yardsticks[kind]"


def described(tree: Tree) -> list[str]:
    """The tree as indented lines for a person."""
    return list(_described(tree.root, 0))


def _described(node: Split | Leaf, level: int) -> Iterator[str]:
    pad = "  " * level
    if isinstance(node, Leaf):
        yield f"{pad}{node.implementation} ({node.cases} cases, regret {node.regret:.3f})"
        return
    yield f"{pad}{_condition(node)}"
    yield from _described(node.yes, level + 1)
    yield f"{pad}else"
    yield from _described(node.no, level + 1)


def _python(node: Split | Leaf, level: int) -> Iterator[str]:
    pad = "    " * level
    if isinstance(node, Leaf):
        yield f'{pad}return "{node.implementation}"  # {node.cases} cases, regret {node.regret:.3f}'
        return
    yield f"{pad}if {_condition(node)}:"
    yield from _python(node.yes, level + 1)
    yield from _python(node.no, level)


def _condition(node: Split) -> str:
    return f'{node.name} == "{node.word}"' if node.word else f"{_spelled(node.name)} <= {node.at}"


def _spelled(name: str) -> str:
    return " * ".join(name.split("*"))


def _ends(node: Split, dims: Mapping[str, int], along: str) -> list[int]:
    """The largest value of a size for which a split says yes, with the other sizes fixed."""
    parts = node.name.split("*")
    if node.word or along not in parts:
        return []
    return [node.at // math.prod(dims[part] for part in parts if part != along)]


def _nodes(node: Split | Leaf) -> Iterator[Split | Leaf]:
    yield node
    if isinstance(node, Split):
        yield from _nodes(node.yes)
        yield from _nodes(node.no)


def _depth(node: Split | Leaf) -> int:
    return 0 if isinstance(node, Leaf) else 1 + max(_depth(node.yes), _depth(node.no))


def _node_json(node: Split | Leaf) -> dict[str, Any]:
    if isinstance(node, Leaf):
        return {"implementation": node.implementation, "cases": node.cases, "regret": node.regret}
    test = {"word": node.word} if node.word else {"at": node.at}
    return {"name": node.name, **test, "yes": _node_json(node.yes), "no": _node_json(node.no)}


def _node(data: Mapping[str, Any]) -> Split | Leaf:
    if "implementation" in data:
        return Leaf(str(data["implementation"]), int(data["cases"]), float(data["regret"]))
    return Split(
        str(data["name"]), int(data.get("at", 0)), str(data.get("word", "")), _node(data["yes"]), _node(data["no"])
    )
