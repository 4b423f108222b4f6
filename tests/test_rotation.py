"""The ring of fresh inputs."""

import pytest

torch = pytest.importorskip("torch", reason="rings hold tensors")

from gemmgate.suite.measure import rotation  # noqa: E402  torch first

CPU = torch.device("cpu")


def _make(slot):
    return {"a": torch.full((16, 16), float(slot)), "b": torch.full((16, 8), float(slot))}


def test_a_ring_is_three_times_the_cache():
    """60 MB of cache and 4 MB of inputs take 45 slots."""
    assert rotation.slots_needed(4_000_000, 60_000_000) == 45


@pytest.mark.parametrize("input_bytes", [1, 1000, 65536, 10**7, 10**9])
def test_a_ring_is_never_capped_below_coldness(input_bytes):
    """However small or large the inputs, slots times bytes is at least three times the cache."""
    cache = 60 * 2**20
    assert rotation.slots_needed(input_bytes, cache) * input_bytes >= 3 * cache


def test_slots_are_made_in_order_and_are_fresh():
    """Slot i comes from make(i) and shares no memory with another."""
    ring = rotation.build_ring(_make, cache_bytes=4096, device=CPU)
    assert ring.cold
    assert [float(slot["a"][0, 0]) for slot in ring.slots] == list(range(len(ring.slots)))
    pointers = {tensor.data_ptr() for tensor in rotation.tensors_in(ring.slots)}
    assert len(pointers) == 2 * len(ring.slots)


def test_a_ring_that_memory_cannot_hold_is_not_cold_and_says_why():
    """With a cache as large as the memory the ring keeps one slot and the sentence has both sizes."""
    ring = rotation.build_ring(_make, cache_bytes=2**50, device=CPU)
    assert not ring.cold
    assert len(ring.slots) == 1
    assert "MiB" in ring.why


def test_tensors_are_found_in_any_nesting():
    """Tensors come out of mappings and sequences in order; other values are passed over."""
    one, two = torch.zeros(2), torch.zeros(3)
    assert [t.numel() for t in rotation.tensors_in({"x": [one, (two, "text", 5)]})] == [2, 3]
    assert rotation.storage_bytes([one, two]) == 20
