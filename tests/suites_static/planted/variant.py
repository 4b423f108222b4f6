"""Options of each launch, by implementation: without a fault."""

OPTIONS: dict[str, dict[str, int]] = {
    "steady": {"num_warps": 4, "num_stages": 3},
    "spiller": {"num_warps": 4, "num_stages": 3},
    "oversize": {"num_warps": 4, "num_stages": 3},
    "fallback": {"num_warps": 4, "num_stages": 3},
}
