"""Another commit's kernels under this checkout's harness: an overlay to compile from."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gemmgate.suite.errors import UsageError


def commit_named(root: Path, revision: str) -> str:
    """The full hash of a revision in the checkout at `root`; empty where git does not know it, or is not there."""
    return _git(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").decode().strip()


@contextmanager
def overlay_of(root: Path, commit: str) -> Iterator[Path]:
    """A folder whose `gemmgate` has the kernels of `commit` and all else of the checkout at `root`.

    Raises UsageError where that commit has no kernels.
    """
    archive = _git(root, "archive", "--format=tar", commit, "--", "kernels")
    if not archive:
        raise UsageError(f"Commit {commit[:10]} has no folder `kernels`: name a newer one.")
    with tempfile.TemporaryDirectory(prefix="gemmgate-base-") as name:
        folder = Path(name)
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        package = folder / "gemmgate"
        package.mkdir()
        for path in (root / "gemmgate").iterdir():
            if path.is_file():
                shutil.copy(path, package)
        (package / "suite").symlink_to((root / "gemmgate" / "suite").resolve())
        (package / "kernels").symlink_to(folder / "kernels")
        yield folder


def _git(root: Path, *arguments: str) -> bytes:
    """What git prints; nothing where it fails or is not there."""
    git = shutil.which("git")
    if git is None:
        return b""
    return subprocess.run([git, "-C", str(root), *arguments], capture_output=True, check=False).stdout
