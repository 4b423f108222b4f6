"""The only reader and writer of `results/`: atomic and append-only.

    results/runs/<machine key>/<run id>.jsonl     while a run goes on, or after it was interrupted: a journal
    results/runs/<machine key>/<run id>.parquet   the finished run
    results/calibrations/<machine key>/           the same for calibrations, which are runs of blocks
    results/timers/<machine key>/                 the same for comparisons of timers
    results/tunings/<machine key>/                the same for tunings, which are runs of candidates
    results/gates/<machine key>/                  and for gates
    results/baselines/<machine key>.json          {"runs": [ids]}: what candidates are compared with

A row is on disk before `Journal.append` returns. `Journal.finish` writes the Parquet file beside the
journal under a temporary name, renames it and removes the journal, so a kill at any moment leaves
either all rows in a journal or all rows in a file. No existing file is ever overwritten: a run whose
id is taken gets `-2`, `-3`. `encoding` says what is inside the files.
"""

from gemmgate.suite.store.files import UnwritableError
from gemmgate.suite.store.folder import OtherKindError, Reading, RunInfo, State, Store, left_out
from gemmgate.suite.store.journal import Journal

__all__ = ["Journal", "OtherKindError", "Reading", "RunInfo", "State", "Store", "UnwritableError", "left_out"]
