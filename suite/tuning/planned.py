"""What a tuning would search, and about how long that would take. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gemmgate.suite.cases import Footprint, Target
from gemmgate.suite.catalog import Item
from gemmgate.suite.tuning.candidates import legal
from gemmgate.suite.tuning.racing import Rules

SEARCH_S = 2.5
"""Of one search, the start of a tuning included: the mean of 150 on an H200 with 30 compilers, from empty caches.

111 by `triton_split_k` took 2.1 s each, 26 by the routers' `dot_product` 3.6 and 13 by their `split_k` 3.5; of all that
two fifths to a half were waiting for compilers.
"""


@dataclass(frozen=True)
class Planned:
    """One implementation's searches: `fewest` and `most` legal tiles of a case; `refused` says why, where none is."""

    family: str
    implementation: str
    searches: int
    fewest: int
    most: int
    refused: str = ""

    @property
    def tried(self) -> int:
        """Tiles that a search tries at most, beside what it is used to choosing."""
        rules = Rules()
        return min(self.most, rules.first + rules.joins * rules.joining)

    @property
    def seconds(self) -> float:
        return SEARCH_S * self.searches


def planned(items: Sequence[Item], replies: Sequence[Mapping[str, Any]], target: Target) -> list[Planned]:
    """For each implementation that has tiles in any case, or says why it has none; `replies` are workers' spaces."""
    counts: dict[tuple[str, str], list[int]] = {}
    refused: dict[tuple[str, str], str] = {}
    for item, reply in zip(items, replies, strict=True):
        name = item.family.name, item.implementation
        if reply.get("failed"):
            refused[name] = f"{item.case.name}: {reply['failed']['detail']}"
        elif reply["tiles"]:
            needs = [Footprint(**data) for data in reply["footprints"] or ()]
            count = sum(legal(one, target) for one in needs) if needs else len(reply["tiles"])
            counts.setdefault(name, []).append(count)
        elif reply["refusal"]:
            refused.setdefault(name, str(reply["refusal"][1]))
    names = dict.fromkeys((item.family.name, item.implementation) for item in items)
    return [
        Planned(*name, len(of_one), min(of_one, default=0), max(of_one, default=0), refused.get(name, ""))
        for name in names
        if (of_one := counts.get(name, [])) or name in refused
    ]
