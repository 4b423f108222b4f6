"""Words that those who compile and those who judge share: of machine code, and of what came to nothing."""

from __future__ import annotations

TENSOR_CORES = ("mma", "wgmma", "tcgen05")
"""Groups of instructions that compute on tensor cores, the latest last."""

NOT_IMPORTED = "not_imported"
"""`reason` of an implementation whose module fails. Its row is of no case and no target."""
NOT_INSTALLED = "not_installed"
"""The same where the module needs another package, as those of others do: usually no kernel of its own is lacking."""
COMPILER_DIED = "compiler_died"
"""`reason` where the process that compiles ended; with status `error` something else ended it."""
