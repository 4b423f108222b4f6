"""The two sides of a gate as folders of their own: a commit's kernels, or the tree as it is, under one harness.

Both sides are copies, so that nothing that is edited meanwhile is measured. What measures, the `suite`, is this
process's own on both sides; only kernels differ. Nothing is written into the repository.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmgate import __version__
from gemmgate.suite import catalog
from gemmgate.suite.commits import Commit, commit_of, git, why_no_commit
from gemmgate.suite.errors import UsageError
from gemmgate.suite.workers import own_overlay

ACCEPTED = "results/accepted.toml"
"""Where a repository keeps what it accepts."""
_IGNORED = shutil.ignore_patterns("__pycache__", ".git", ".nox", ".venv")


@dataclass(frozen=True)
class SideTree:
    """One side on disk. `overlay` is for a worker's path; `tree` a hash over all sources that it may import.

    `revision` is what was asked for, empty for the tree as it is; `commit` the hash it meant. `sources` is the
    folder, below `overlay`, from which paths in the repository count.
    """

    overlay: Path
    suites: tuple[Path, ...]
    revision: str
    commit: str
    dirty: bool
    tree: str
    sources: Path

    @property
    def kernels(self) -> Path:
        return self.overlay / "gemmgate" / "kernels"


class Checkouts:
    """Makes sides below `folder`. With `suites`, their repository is the one whose commits are meant."""

    def __init__(self, folder: Path, suites: Sequence[Path] = ()) -> None:
        self._folder = folder
        self._own = own_overlay()
        self._suites = [suite.resolve() for suite in suites]
        for suite in self._suites:
            if not suite.is_dir():
                raise UsageError(f"--suite {suite}: no such folder.")
        kernels = (self._own / "gemmgate" / "kernels").resolve()
        roots = {_toplevel(place) for place in self._suites or [kernels]}
        if len(roots) > 1:
            raise UsageError(
                f"The folders of --suite lie in several repositories ({', '.join(sorted(map(str, roots)))}): "
                "a commit belongs to one. Gate one at a time."
            )
        self.root = roots.pop()
        if self.root is None and len(self._suites) > 1:
            raise UsageError("Outside a git repository, one folder of --suite can be gated at a time.")
        self._harness = self._copy(self._own / "gemmgate" / "suite", folder / "suite")

    def side(self, name: str, revision: str = "") -> SideTree:
        """The side `name`: a commit, or without `revision` the tree as it is now. Raises `UsageError`."""
        commit = self._commit(revision)
        base = self._folder / name
        package = base / "gemmgate"
        package.mkdir(parents=True)
        for file in ("__init__.py", "__main__.py", "py.typed"):
            shutil.copy(self._own / "gemmgate" / file, package / file)
        (package / "suite").symlink_to(self._harness)
        own_kernels = (self._own / "gemmgate" / "kernels").resolve()
        if self._suites:
            self._copy(own_kernels, package / "kernels")
            sources = self._export(commit, revision, Path(), base / "sources")
            suites = tuple(sources / suite.relative_to(self.root or suite) for suite in self._suites)
        else:
            path = own_kernels.relative_to(self.root) if self.root else Path("kernels")
            self._export(commit, revision, path, base / "sources" / path)
            (package / "kernels").symlink_to(base / "sources" / path)
            sources, suites = base / "sources", ()
        missing = [
            str(folder.relative_to(sources)) for folder in suites or [package / "kernels"] if not folder.is_dir()
        ]
        if missing:
            raise UsageError(f"Commit {commit.name[:10]} ({revision}) has no folder {', '.join(missing)}.")
        tree = "-".join(catalog.tree_hash(folder) for folder in (package / "kernels", *suites))
        return SideTree(base, suites, revision, commit.name, commit.dirty, tree, sources.resolve())

    def read(self, side: SideTree, path: str) -> str | None:
        """A file of the repository as that side has it; None where it has none."""
        if self.root is None:
            return None
        if side.revision:
            known = git(self.root, "ls-tree", "--name-only", side.commit, "--", path)
            return git(self.root, "show", f"{side.commit}:{path}") if known else None
        file = self.root / path
        return file.read_text(encoding="utf-8") if file.is_file() else None

    def release(self, side: SideTree) -> str:
        """The newest tag `v<number>...` that the side's commit descends from; empty where there is none."""
        return (
            git(self.root, "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", side.commit) if self.root else ""
        )

    def _commit(self, revision: str) -> Commit:
        if self.root is None:
            if revision:
                raise UsageError(
                    f"'{revision}' names a commit, but {self._place} lies in no git repository that can be read "
                    f"({why_no_commit(self._place)}): there, only two interpreters can be compared, with --base-python "
                    "and --head-python."
                )
            return Commit(f"v{__version__}", dirty=False)
        if not revision:
            paths = [str(path) for path in self._suites] or [str((self._own / "gemmgate" / "kernels").resolve())]
            head = commit_of(self.root, "HEAD")
            if not head:
                raise UsageError(f"The repository {self.root} has no commit yet: there is nothing to compare with.")
            return Commit(head, dirty=bool(git(self.root, "status", "--porcelain", "--", *paths)))
        found = commit_of(self.root, revision)
        if found:
            return Commit(found, dirty=False)
        if git(self.root, "rev-parse", "--is-shallow-repository") == "true":
            remote, _, branch = revision.partition("/")
            fetch = f"git fetch --depth=1 {remote} {branch}:refs/remotes/{remote}/{branch}"
            if not branch or any(sign in revision for sign in "~^@:"):
                fetch = "git fetch --unshallow origin"
            raise UsageError(
                f"This clone of {self.root} is shallow and does not hold '{revision}'. Get it with `{fetch}`, "
                "or clone with the whole history (fetch-depth: 0)."
            )
        branches = git(self.root, "for-each-ref", "--format=%(refname:short)", "--count=12").splitlines()
        raise UsageError(
            f"git in {self.root} knows no commit '{revision}'. It has the branches and tags: {', '.join(branches)}."
        )

    @property
    def _place(self) -> Path:
        return self._suites[0] if self._suites else self._own

    def _export(self, commit: Commit, revision: str, path: Path, into: Path) -> Path:
        """A folder of the commit, or of the tree without what git ignores."""
        into.parent.mkdir(parents=True, exist_ok=True)
        if self.root is None:
            return self._copy(self._suites[0] if self._suites else self._own / "gemmgate" / "kernels", into)
        if revision:
            return _commit_files(self.root, commit.name, path, into)
        into.mkdir()
        listed = git(self.root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", str(path))
        for name in filter(None, dict.fromkeys(listed.split("\0"))):
            source, target = self.root / name, into / Path(name).relative_to(path)
            if source.is_symlink() or source.is_file():  # what is deleted in the tree is listed all the same
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)
        return into

    @staticmethod
    def _copy(source: Path, into: Path) -> Path:
        shutil.copytree(source.resolve(), into, symlinks=True, ignore=_IGNORED)
        return into


def _commit_files(root: Path, commit: str, path: Path, into: Path) -> Path:
    """As a checkout writes them, filters included, through an index of its own."""
    into.mkdir()
    environment = {**os.environ, "GIT_INDEX_FILE": str(into.parent / f"{into.name}.index")}
    tree = f"{commit}:{'' if path == Path() else path.as_posix()}"
    for arguments in (("read-tree", tree), ("checkout-index", "--all", "--force", f"--prefix={into}/")):
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise UsageError(f"git cannot write out {tree} of {root}: {done.stderr.strip() or 'it does not say why'}.")
    return into


def _toplevel(folder: Path) -> Path | None:
    found = git(folder, "rev-parse", "--show-toplevel")
    return Path(found).resolve() if found else None
