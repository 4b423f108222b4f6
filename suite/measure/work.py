"""A case under way in a worker: its inputs as rings, one for each cache state, its references, what is ready."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from gemmgate.suite.cases import Case, Family, Implementation, Inputs, Prepared
from gemmgate.suite.measure import check
from gemmgate.suite.measure.check import Errors
from gemmgate.suite.measure.proof import Proof
from gemmgate.suite.measure.refusal import Refused
from gemmgate.suite.measure.rotation import Ring, extra_slots, serving_ring, sharing, storage_bytes, tensors_in


@dataclass
class Work:
    """A case being measured: its inputs, its float64 references by slot, what has been prepared."""

    case: Case
    family: Family
    make: Callable[[int], Inputs]
    reference: Callable[[Inputs], list[torch.Tensor]]
    ring: Ring
    device: torch.device
    cache_bytes: int
    ready: dict[str, Prepared] = field(default_factory=dict)
    implementations: dict[str, Implementation] = field(default_factory=dict)
    references: dict[tuple[bool, int], list[torch.Tensor]] = field(default_factory=dict)
    medians_s: dict[str, dict[str, float]] = field(default_factory=dict)
    clocks_hz: dict[str, dict[str, float | None]] = field(default_factory=dict)
    shown: dict[str, Proof] = field(default_factory=dict)
    serving: Ring | None = None
    doubled: dict[str, Ring] = field(default_factory=dict)
    decide: Callable[[Inputs, torch.Tensor, torch.Tensor], dict[str, float]] | None = None

    @property
    def activation_bytes(self) -> int:
        """Bytes of the inputs that the family calls activations."""
        return storage_bytes([self.ring.slots[0][name] for name in self.family.activations])

    def ring_of(self, cache: str) -> Ring:
        """The ring of a cache state. Raises `Refused` where there is no such state."""
        if cache == "hot":
            return self.ring
        if not self.ring.cold:
            raise Refused("unsupported", "ring_too_large", self.ring.why)
        if cache == "cold":
            return self.ring
        if not self.family.activations:
            detail = f"family '{self.family.name}' calls none of its inputs activations"
            raise Refused("unsupported", "no_activations", detail)
        if self.serving is None:
            self.serving = serving_ring(self.ring, self.make, self.family.activations, self.cache_bytes, self.device)
        if not self.serving.cold:
            raise Refused("unsupported", "ring_too_large", self.serving.why)
        return self.serving

    def doubled_ring(self, cache: str) -> Ring | None:
        """Twice the ring, those slots last that the ring has too; None where memory is short."""
        if cache not in self.doubled:
            ring = self.ring_of(cache)
            shared = {name: ring.slots[0][name] for name in self.family.activations} if cache == "serving" else {}
            first = max(len(self.ring.slots), len(ring.slots))
            own_bytes = ring.input_bytes - storage_bytes(shared)
            extra = extra_slots(sharing(self.make, shared), first, len(ring.slots), own_bytes, self.device)
            if extra is None:
                return None
            self.doubled[cache] = replace(ring, slots=(*extra, *ring.slots))
        return self.doubled[cache]

    def expected(self, slot: int, cache: str = "cold", inputs: Inputs | None = None) -> list[torch.Tensor]:
        """The float64 results for a slot of that state's ring, for a seed beyond it, or for `inputs` so named."""
        key = (cache == "serving", slot)
        if key not in self.references:
            slots = self.ring_of(cache).slots if cache == "serving" else self.ring.slots
            known = slots[slot] if inputs is None and slot < len(slots) else inputs
            self.references[key] = self.reference(self.make(slot) if known is None else known)
        return self.references[key]

    def verify(self, name: str, slot: int, output: Any, cache: str = "cold") -> Errors:
        """What an implementation returned for that slot, as `judge`."""
        return self.judge(name, output, self.expected(slot, cache))

    def judge(self, name: str, output: Any, references: Sequence[torch.Tensor]) -> Errors:
        """What an implementation returned, by its own bound or else the family's."""
        bound = self.implementations[name].error_bound or self.family.error_bound
        return check.compare(tensors_in(output), references, self.family.output_dtype(self.case), bound(self.case))
