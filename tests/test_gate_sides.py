"""The two sides of a gate on disk: commits, trees, what cannot be found, what is one and the same, and who waits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gemmgate.suite import catalog, checkouts, identity, locks, offers
from gemmgate.suite.catalog import Selection
from gemmgate.suite.checkouts import Checkouts
from gemmgate.suite.cli import _gate_sides
from gemmgate.suite.errors import CannotMeasureError, UsageError
from gemmgate.suite.pairs import LaunchSide
from tests.gate_repository import git, make_repository

ROOT = Path(__file__).resolve().parents[1]
EVERYTHING = Selection(implementations=("*",))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a family below `families`, of one commit."""
    return make_repository(tmp_path / "theirs")


def made(tmp_path: Path, repository: Path) -> Checkouts:
    """Sides of that repository, in a folder of their own."""
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    return Checkouts(work, [repository / "families"])


def test_a_commit_and_a_changed_tree_are_two_sides(tmp_path: Path, repository: Path) -> None:
    """The base has what was committed, the head what was changed since; new files count and ignored ones do not."""
    family = repository / "families" / "row_sums"
    committed = (family / "sums.py").read_text()
    (family / "sums.py").write_text(committed + "CHANGED = 1\n")
    (family / "extra.py").write_text("X = 1\n")
    (family / "junk.log").write_text("x")
    (repository / ".gitignore").write_text("*.log\n")
    sides = made(tmp_path, repository)
    base, head = sides.side("base", "HEAD"), sides.side("head")
    assert (base.suites[0] / "row_sums" / "sums.py").read_text() == committed
    assert (head.suites[0] / "row_sums" / "sums.py").read_text() == committed + "CHANGED = 1\n"
    assert (head.suites[0] / "row_sums" / "extra.py").exists()
    assert not (head.suites[0] / "row_sums" / "junk.log").exists()
    assert (base.dirty, head.dirty) == (False, True)
    assert base.tree != head.tree
    assert base.commit == head.commit == git(repository, "rev-parse", "HEAD")


def test_equal_sources_have_equal_trees(tmp_path: Path, repository: Path) -> None:
    """A commit and the tree that was checked out from it are the same, and not dirty."""
    sides = made(tmp_path, repository)
    base, head = sides.side("base", "HEAD"), sides.side("head")
    assert base.tree == head.tree and not head.dirty


def test_what_is_edited_meanwhile_is_not_measured(tmp_path: Path, repository: Path) -> None:
    """Once a side is made, changes to the tree do not reach it."""
    side = made(tmp_path, repository).side("head")
    before = (side.suites[0] / "row_sums" / "sums.py").read_text()
    (repository / "families" / "row_sums" / "sums.py").write_text("broken")
    assert (side.suites[0] / "row_sums" / "sums.py").read_text() == before


@pytest.mark.parametrize("branch", ["feature/a", "ünïcode", "-dash", "a'quote", "v1.0@x"])
def test_odd_branch_names_are_found(tmp_path: Path, repository: Path, branch: str) -> None:
    """Whatever git lets a branch be called names a side."""
    git(repository, "update-ref", f"refs/heads/{branch}", "HEAD")
    assert made(tmp_path, repository).side("base", branch).commit == git(repository, "rev-parse", "HEAD")


def test_a_detached_head_is_a_side(tmp_path: Path, repository: Path) -> None:
    """Without a branch the tree still has a commit, and HEAD names it."""
    git(repository, "checkout", "--quiet", "--detach")
    sides = made(tmp_path, repository)
    assert sides.side("base", "HEAD").commit == sides.side("head").commit


def test_a_shallow_clone_says_what_to_fetch(tmp_path: Path, repository: Path) -> None:
    """A commit that a shallow clone lacks is an error with the command that gets it."""
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "second")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--depth=1", repository.as_uri(), str(clone))
    sides = made(tmp_path, clone)
    with pytest.raises(UsageError, match="git fetch --depth=1 origin release:refs/remotes/origin/release"):
        sides.side("base", "origin/release")
    with pytest.raises(UsageError, match=r"git fetch --unshallow origin.*fetch-depth: 0"):
        sides.side("other", "HEAD~1")
    git(clone, "fetch", "--quiet", "--unshallow", "origin")
    assert sides.side("other", "HEAD~1").commit


def test_an_unknown_commit_lists_what_there_is(tmp_path: Path, repository: Path) -> None:
    """A name that git does not know is an error with the branches that it does."""
    with pytest.raises(UsageError, match=r"knows no commit 'nowhere'.*main"):
        made(tmp_path, repository).side("base", "nowhere")


def test_a_commit_without_the_folder_is_said(tmp_path: Path, repository: Path) -> None:
    """A base from before the families were there has nothing to compare with."""
    empty = git(repository, "commit-tree", "4b825dc642cb6eb9a060e54bf8d69288fbee4904", "-m", "empty")
    with pytest.raises(UsageError, match="has no folder"):
        made(tmp_path, repository).side("base", empty)


def test_without_git_a_commit_cannot_be_named(tmp_path: Path, repository: Path) -> None:
    """Outside any repository there is a tree and no commit, and the sentence names what can be compared there."""
    outside = tmp_path / "plain"
    (repository / "families").rename(outside)
    work = tmp_path / "work"
    work.mkdir()
    sides = Checkouts(work, [outside])
    with pytest.raises(UsageError, match="--base-python"):
        sides.side("base", "HEAD")
    assert (sides.side("head").suites[0] / "row_sums" / "sums.py").is_file()


def test_folders_of_two_repositories_are_refused(tmp_path: Path, repository: Path) -> None:
    """A commit belongs to one repository."""
    other = make_repository(tmp_path / "other")
    with pytest.raises(UsageError, match="several repositories"):
        Checkouts(tmp_path / "work", [repository / "families", other / "families"])


def test_the_accepted_file_is_that_of_the_side(tmp_path: Path, repository: Path) -> None:
    """A commit's file is read as committed, the tree's as it is, and None where there is none."""
    sides = made(tmp_path, repository)
    base, head = sides.side("base", "HEAD"), sides.side("head")
    (repository / "results").mkdir()
    (repository / checkouts.ACCEPTED).write_text("creep = 0.5\n")
    assert sides.read(base, checkouts.ACCEPTED) is None
    assert sides.read(head, checkouts.ACCEPTED) == "creep = 0.5\n"


def test_the_last_release_is_the_newest_tag_behind(tmp_path: Path, repository: Path) -> None:
    """Of tags v0.1 and v0.2 the later is meant, other tags are not, and without any there is none."""
    sides = made(tmp_path, repository)
    side = sides.side("base", "HEAD")
    assert sides.release(side) == ""
    git(repository, "tag", "v0.1")
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "second")
    git(repository, "tag", "v0.2")
    git(repository, "tag", "nightly")
    assert sides.release(sides.side("later", "HEAD")) == "v0.2"


def test_a_side_offers_its_own_cases(tmp_path: Path, repository: Path) -> None:
    """Each side's process lists that side's cases, with the files behind them, and no case of this checkout."""
    init = repository / "families" / "row_sums" / "__init__.py"
    init.write_text(init.read_text().replace("m8-k100-fp32", "m8-k200-fp32"))
    sides = made(tmp_path, repository)
    found = {}
    for name, revision in (("base", "HEAD"), ("head", "")):
        side = sides.side(name, revision)
        found[name] = offers.ask(sys.executable, side.overlay, side.suites, EVERYTHING)
        assert {Path(offer.file).name for offer in found[name]} == {"sums.py"}
        assert all(Path(offer.file).is_relative_to(side.sources) for offer in found[name])
    assert {offer.path for offer in found["base"]} == {
        "row_sums/torch_sum/m8-k100-fp32",
        "row_sums/by_product/m8-k100-fp32",
    }
    assert {offer.case.name for offer in found["head"]} == {"m8-k200-fp32"}
    (item,) = [item for item in offers.items(found["base"]) if item.implementation == "torch_sum"]
    assert item.family.flop(item.case) == 800


def test_a_selection_that_a_side_lacks_is_said_in_its_words(tmp_path: Path, repository: Path) -> None:
    """What matches nothing there is a usage error, as it would be here; an interpreter that fails is another."""
    side = made(tmp_path, repository).side("base", "HEAD")
    with pytest.raises(UsageError, match="No case matches 'nothing'"):
        offers.ask(sys.executable, side.overlay, side.suites, Selection(cases=("nothing",)))
    with pytest.raises(CannotMeasureError, match="cannot import this side"):
        offers.ask("false", side.overlay, side.suites, EVERYTHING)
    with pytest.raises(UsageError, match="cannot be started"):
        offers.ask(str(tmp_path / "no-python"), side.overlay, side.suites, EVERYTHING)


def test_what_only_the_head_has_is_not_all_that_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the base has nothing of a selection and the head has, the sentence says which side lacks it."""
    lacking = UsageError("No implementation matches 'new'.")
    answers: dict[str, list[Any]] = {"base": [lacking, []], "head": [[], []]}
    monkeypatch.setattr(offers, "ask_each", lambda python, *rest: answers[python])
    asked: Any = SimpleNamespace(selection=Selection(implementations=("new",)), suites=())
    side = SimpleNamespace(overlay=None, suites=())
    launch = {"baseline": SimpleNamespace(python="base"), "candidate": SimpleNamespace(python="head")}
    sides: Any = SimpleNamespace(trees={"baseline": side, "candidate": side}, launch=launch)
    with pytest.raises(UsageError, match=r"The base has nothing of the sort, and the head does: .*'new'"):
        _gate_sides.find_items(asked, sides)
    answers["head"] = [UsageError("No implementation matches 'new'. Known: mm."), []]
    with pytest.raises(UsageError, match=r"^No implementation matches 'new'.$"):
        _gate_sides.find_items(asked, sides)


def test_a_family_that_prints_offers_its_cases(tmp_path: Path, repository: Path) -> None:
    """What a family prints as it is imported is no part of its side's answer."""
    init = repository / "families" / "row_sums" / "__init__.py"
    init.write_text(init.read_text() + "\nprint('hello from a family')\n")
    side = made(tmp_path, repository).side("head", "")
    assert len(offers.ask(sys.executable, side.overlay, side.suites, EVERYTHING)) == 2


def test_a_worker_on_another_sides_kernels_is_refused(tmp_path: Path, repository: Path) -> None:
    """A side whose package points at other kernels than its own folder holds never measures anything."""
    side = made(tmp_path, repository).side("base", "HEAD")
    init = side.kernels / "__init__.py"
    init.write_text(init.read_text() + f"\n__path__ = [{str(ROOT / 'kernels' / 'dense_splitk')!r}]\n")
    assert catalog.tree_hash(side.kernels) != catalog.tree_hash(ROOT / "kernels")
    worker = LaunchSide(side.overlay).start("cpu", [], ())
    worker.greet()
    with pytest.raises(CannotMeasureError, match="other kernels"):
        worker.meet()


def hashed(folder: Path, **files: str) -> str:
    """The hash of `kernel.py` in a folder of a side with these modules."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return identity.source_hash([folder / "kernel.py"], folder.parent)


def test_comments_and_docstrings_are_no_difference(tmp_path: Path) -> None:
    """Layout, comments and docstrings leave the hash alone; a constant changes it."""
    plain = hashed(tmp_path / "a" / "p", kernel="def f():\n    return 1\n")
    assert plain
    assert (
        hashed(tmp_path / "b" / "p", kernel='"""Doc."""\n\n# c\ndef f():\n    """Says."""\n    return (1)\n') == plain
    )
    assert hashed(tmp_path / "c" / "p", kernel="def f():\n    return 2\n") != plain


@pytest.mark.parametrize(
    "how", ["from . import shared", "from .shared import x", "import shared", "from p import shared", "import p.shared"]
)
def test_what_a_kernel_imports_counts(tmp_path: Path, how: str) -> None:
    """A change in a module that it imports, however, changes the hash; one in a module that it does not, not."""
    first = hashed(tmp_path / "a" / "p", kernel=how, shared="x = 1", other="y = 1")
    assert hashed(tmp_path / "b" / "p", kernel=how, shared="x = 2", other="y = 1") != first
    assert hashed(tmp_path / "c" / "p", kernel=how, shared="x = 1", other="y = 2") == first


def test_what_cannot_be_parsed_is_never_the_same(tmp_path: Path) -> None:
    """A file with a syntax error has no hash, and no hash is no identity."""
    assert hashed(tmp_path / "a" / "p", kernel="def") == ""
    facts = {"sources": "", "launches": "x"}
    assert not identity.same(facts, facts, on_gpu=True)


def test_on_a_gpu_unknown_launches_prove_nothing() -> None:
    """Where the driver does not show a graph's nodes, equal sources are timed; on a CPU there are none to show."""
    facts = {"sources": "s", "launches": "", "stack": 1}
    assert not identity.same(facts, facts, on_gpu=True)
    assert identity.same(facts, facts, on_gpu=False)
    assert not identity.same(facts, {**facts, "stack": 2}, on_gpu=False)


def test_two_gates_on_a_board_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one without patience ends with the holder's number and exit code 3; another board is free."""
    monkeypatch.setenv("GEMMGATE_LOCKS", str(tmp_path))
    with locks.board_lock("b", wait=False, say=print):
        with (
            pytest.raises(CannotMeasureError, match="--no-wait") as error,
            locks.board_lock("b", wait=False, say=print),
        ):
            pass
        assert error.value.exit_code == 3
        with locks.board_lock("c", wait=False, say=print):
            pass
    with locks.board_lock("b", wait=False, say=print):
        pass
    with (
        locks.board_lock("", wait=False, say=print),
        pytest.raises(CannotMeasureError, match=r"^This CPU is being gated by process"),
        locks.board_lock("", wait=False, say=print),
    ):
        pass


def test_a_patient_gate_says_whom_it_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so once, and begins when the holder has ended, however that ended."""
    monkeypatch.setenv("GEMMGATE_LOCKS", str(tmp_path))
    code = (
        "import sys; from gemmgate.suite.locks import board_lock\n"
        "with board_lock('b', wait=False, say=print): print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    told: list[str] = []

    def say(text: str) -> None:
        told.append(text)
        holder.kill()

    with locks.board_lock("b", wait=True, say=say):
        pass
    holder.wait()
    for pipe in (holder.stdin, holder.stdout):
        if pipe:
            pipe.close()
    assert len(told) == 1 and f"process {holder.pid}," in told[0]


def made_of(folder: Path, **files: str) -> str:
    """What `kernels/one/kernel.py` is made of, in a side with these files; `__` in their names stands for a folder."""
    for name, text in files.items():
        path = folder / "kernels" / name.replace("__", "/")
        path = path.with_suffix(".json") if text.startswith("{") else path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return identity.made_of_hash([folder / "kernels" / "one" / "kernel.py"], folder)


def test_what_an_item_is_made_of(tmp_path: Path) -> None:
    """Its sources, what they import and the tables beside them count; comments, other modules and families do not."""
    files = {
        "one__kernel": "from . import shared",
        "one__shared": "x = 1",
        "one__other": "y = 1",
        "one__tuned__h200": '{"tile": 1}',
        "two__kernel": "z = 1",
        "two__tuned__h200": '{"tile": 1}',
    }
    first = made_of(tmp_path / "a", **files)
    same = {**files, "one__other": "y = 2", "two__kernel": "z = 2", "two__tuned__h200": '{"tile": 2}'}
    assert made_of(tmp_path / "b", **{**same, "one__kernel": "from . import shared  # a comment"}) == first
    for index, (name, text) in enumerate({"one__shared": "x = 2", "one__tuned__h200": '{"tile": 2}'}.items()):
        assert made_of(tmp_path / f"c{index}", **{**files, name: text}) != first


def test_what_is_imported_by_name_counts(tmp_path: Path) -> None:
    """Where a module imports others by a name that it makes up, every source in its folder counts."""
    files = {"one__kernel": "import importlib\nimportlib.import_module('one.' + 'other')", "one__other": "y = 1"}
    first = made_of(tmp_path / "a", **files)
    assert made_of(tmp_path / "b", **{**files, "one__other": "y = 2"}) != first
    assert made_of(tmp_path / "c", **{**files, "one__kernel": "def"}) == ""
