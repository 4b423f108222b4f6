"""Shapes in files, and their sums: what people have is read, what is broken is named with its line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gemmgate.suite.catalog import Catalog, find
from gemmgate.suite.compare import rate
from gemmgate.suite.errors import UnreadableError, UsageError
from gemmgate.suite.records import Limits
from gemmgate.suite.report.layout import Notes, Table
from gemmgate.suite.report.totals import totals
from gemmgate.suite.shapefiles import COLUMNS, read_shapes, write_shapes
from gemmgate.suite.shapes import Made, Shape, dtype_word, make_cases
from gemmgate.suite.store import Store
from tests import runs
from tests.called import called
from tests.stored import interrupted


def read(tmp_path: Path, text: str) -> list[Shape]:
    """The shapes of a file with that text."""
    (tmp_path / "shapes.csv").write_text(text)
    shapes, broken = read_shapes(tmp_path / "shapes.csv")
    assert broken == []
    return shapes


def sizes(shapes: list[Shape]) -> list[tuple[int, int, int]]:
    """M, N, K of each."""
    return [(shape.m, shape.n, shape.k) for shape in shapes]


OURS = """\
# what the service does all day

n,m,k,count,dtype,name,role,extra
5120,16,2048,48,bf16,qkv,attention,x
128,16,2048,48,torch.float32,,router,
"""
TRITONBENCH = """\
(M, N, K);aten_matmul-latency;triton_tutorial_matmul-latency;triton_tutorial_matmul-speedup
(256, 512, 1024);0.0091;0.0087;1.04
(16, 16, 4096);0.0062;0.0131;0.47
"""
TRITONBENCH_UNNAMED = 'x_val,aten-latency\n"(64, 32, 128, None)",0.1\n'
CUTLASS = """\
Problem,Provider,OperationKind,Operation,Disposition,Status,gemm_kind,m,n,k,A,B,C,alpha,beta,split_k_slices,batch_count
1,CUTLASS,gemm,cutlass_tensorop_bf16_s16816gemm_128x64_tn,passed,success,universal,64,128,4096,bf16:row,bf16:column,bf16:row,1,0,1,1
1,CUTLASS,gemm,cutlass_tensorop_bf16_s16816gemm_256x64_tn,passed,success,universal,64,128,4096,bf16:row,bf16:column,bf16:row,1,0,1,1
2,CUTLASS,gemm,cutlass_simt_sgemm_128x128_nn,passed,success,batched,64,64,64,f32:row,f32:row,f32:row,1,0,1,12
"""


def test_our_own_form(tmp_path: Path) -> None:
    """Columns in any order, comments, blank lines, dtypes as torch says them, counts, names and roles."""
    first, second = read(tmp_path, OURS)
    assert first == Shape(16, 5120, 2048, "bf16", 48, "", "attention", "shapes.csv, line 4: qkv")
    assert (second.dtype, second.role, second.origin) == ("fp32", "router", "shapes.csv, line 5")


def test_tuples_in_the_first_column(tmp_path: Path) -> None:
    """A benchmark's table with semicolons and one column of tuples; nothing there counts calls or says a dtype."""
    found = read(tmp_path, TRITONBENCH)
    assert sizes(found) == [(256, 512, 1024), (16, 16, 4096)]
    assert {(shape.calls, shape.dtype) for shape in found} == {(None, "")}
    assert sizes(read(tmp_path, TRITONBENCH_UNNAMED)) == [(64, 32, 128)]
    assert sizes(read(tmp_path, "(B, M, K, N);latency\n(1, 2, 3, 4);5\n")) == [(2, 4, 3)]


def test_a_profilers_table(tmp_path: Path) -> None:
    """CUTLASS's columns give dtype, layout and batch; kernels tried on one problem are one case, and no calls."""
    found = read(tmp_path, CUTLASS)
    assert [(shape.dtype, shape.layout, shape.batch) for shape in found] == [
        ("bf16", "row-column", 1), ("bf16", "row-column", 1), ("fp32", "row-row", 12)
    ]  # fmt: skip
    made = make_cases(found, find(), "dense_splitk")
    assert [case.name for case in made.cases] == ["m64-n128-k4096-bf16"]
    assert made.calls == {}
    assert made.notes[0] == "1 shape left out: batched products, which no family computes."
    assert "2 shapes with a column-major operand" in made.notes[-1]


@pytest.mark.parametrize(
    "text",
    [
        "M;N;K\n1;2;3\n",
        "m\tn\tk\n1\t2\t3\n",
        "\ufeffm, n, k\r\n1, 2, 3.0\r\n",
        '"m","n","k"\n"1","2","3"\n',
        "(M, N, K)\n(1, 2, 3)\n",
        "m,n,k,ms,ms,,\n1,2,3,0.1,0.2,,\n",
    ],
)
def test_dialects(tmp_path: Path, text: str) -> None:
    """Semicolons, tabs, a byte-order mark, Windows line ends, blanks, quotes and other columns are the same file."""
    assert sizes(read(tmp_path, text)) == [(1, 2, 3)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no shapes"),
        ("m,n,k\n", "has no shapes"),
        ("a,b,c\n1,2,3\n", "its first line names no m, n and k, nor one column (M, N, K). It has: a, b, c."),
        ("1,2,3\n4,5,6\n", "It has: 1, 2, 3."),
        ("(B, T, V);latency\n(8, 512, 4096);0.3\n", "It has: (B, T, V), latency."),
        (
            "m,n,k\n1,2,z\n\n4,five,6\n",
            "no whole number above 0. Correct the line or remove it. No other line can be read either (2 in all).",
        ),
        ("m,n,k\n\n\n4,five,6\n", "line 4: n is 'five', which is no whole number above 0. Correct the line"),
        ("m,n,k\n1,2,0\n", "line 2: k is '0', which is no whole number above 0"),
        ("m,n,k\n3000000,3000000,3000000\n", "line 2: 3000000 x 3000000 x 3000000 is more than a row can count"),
        ("m,n,k\n1,2,-3\n", "line 2: k is '-3'"),
        ("m,n,k\n1,2,2.5\n", "line 2: k is '2.5'"),
        ("m,n,k\n1,2\n", "line 2: it has 2 cells where the first line has 3"),
        ("m,n,k,dtype\n1,2,3,bf61\n", "line 2: 'bf61' is no dtype known here (bf16, fp16"),
        ("m,n,k,count\n1,2,3,often\n", "line 2: count is 'often'"),
        ("m,n,k,role\n1,2,3,main\n", "line 2: role 'main' is none of dense, router"),
        (
            "m,n,k\n" + "9" * 200_000 + ",1,1\n16,16,256\n",
            "line 2: field larger than field limit (131072). Correct the",
        ),
        ("m,n,k,M\n1,2,3,4\n", "its first line names column 'm' twice. Remove or rename one of them."),
        ("m,n,k,op,op\n1,2,3,a,b\n", "its first line names column 'op' twice."),
        ("(M, N, K);(M, N, K)\n(1, 2, 3);(4, 5, 6)\n", "its first line names column '(m, n, k)' twice."),
        ("(M, N, K)\nlarge\n", "line 2: 'large' is no tuple (m, n, k)"),
        ("(M, N, K)\n(1; 2; x)\n", "line 2: '(1' is no tuple"),
    ],
)
def test_broken_files(tmp_path: Path, text: str, said: str) -> None:
    """A line that cannot be read is named by its number, with what is wrong; so is a file without shapes."""
    with pytest.raises(UnreadableError) as error:
        read(tmp_path, text)
    assert said in str(error.value)
    assert str(tmp_path / "shapes.csv") in str(error.value)


def test_the_other_lines_of_a_file_are_read(tmp_path: Path) -> None:
    """Of four lines two cannot be read: the other two are shapes, and each of the two is named with what is wrong."""
    (tmp_path / "shapes.csv").write_text("m,n,k,dtype\n1,2,3,bf16\n4,five,6,bf16\n7,8\n9,10,11,fp32\n")
    shapes, broken = read_shapes(tmp_path / "shapes.csv")
    assert [(shape.m, shape.n, shape.k) for shape in shapes] == [(1, 2, 3), (9, 10, 11)]
    assert [said.partition(", ")[2] for said in broken] == [
        "line 3: n is 'five', which is no whole number above 0; left out.",
        "line 4: it has 2 cells where the first line has 4; left out.",
    ]


def test_files_that_are_no_text(tmp_path: Path) -> None:
    """A missing file, a folder and a binary file are each told apart."""
    with pytest.raises(UsageError, match="No such file"):
        read_shapes(tmp_path / "none.csv")
    with pytest.raises(UsageError, match="Is a directory"):
        read_shapes(tmp_path)
    (tmp_path / "binary.csv").write_bytes(b"PAR1\xff\xfe")
    with pytest.raises(UnreadableError, match="is no text"):
        read_shapes(tmp_path / "binary.csv")


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    """A file in the form that a capture writes gives its shapes back, and is not written over."""
    path = tmp_path / "captured.csv"
    rows = ("addmm", 4, 8, 16, 1, "bf16", "row-column", "cuda", 12), ("bmm", 1, 2, 3, 5, "fp32", "", "cpu", 7)
    write_shapes(path, rows)
    assert path.read_text().splitlines()[0] == ",".join(COLUMNS)
    (first, second), _ = read_shapes(path)
    assert first == Shape(4, 8, 16, "bf16", 12, "", "dense", "captured.csv, line 2: addmm", 1, "row-column")
    assert (second.batch, second.calls) == (5, 7)
    with pytest.raises(FileExistsError):
        write_shapes(path, [])


@pytest.mark.parametrize(
    ("text", "word"), [("torch.bfloat16", "bf16"), ("Half", "fp16"), ("f32", "fp32"), ("tf32", "tf32"), ("s8", "int8")]
)
def test_dtype_words(text: str, word: str) -> None:
    """Dtypes as torch, CUTLASS and people write them."""
    assert dtype_word(text) == word


# cases


def test_the_same_product_is_one_case() -> None:
    """Calls of equal products add up within a group, their origins are joined, more than three are counted."""
    shapes = [Shape(1, 2, 3, "bf16", calls, group, "dense", f"from {calls}") for calls, group in
              ((1, "a"), (10, "a"), (100, "b"), (1000, "a"), (1, "a"))]  # fmt: skip
    made = make_cases(shapes, find(), "dense_splitk")
    (case,) = made.cases
    assert made.calls == {"a": {"dense_splitk/m1-n2-k3-bf16": 1012}, "b": {"dense_splitk/m1-n2-k3-bf16": 100}}
    assert case.origin == "from 1; from 10; from 100; and 1 more"
    assert Made.from_json(json.loads(json.dumps(made.to_json()))) == Made(made.cases, made.calls)


def test_dtypes_become_precisions() -> None:
    """fp32 is IEEE, tf32 is fp32 with TF32 products, a shape without a dtype takes the one asked for."""
    shapes = [Shape(1, 2, 3, dtype) for dtype in ("fp32", "tf32", "")]
    made = make_cases(shapes, find(), "dense_splitk", "fp16")
    assert [(case.dtype, case.precision) for case in made.cases] == [
        ("fp32", "ieee"),
        ("fp32", "tf32"),
        ("fp16", "acc32"),
    ]


def test_a_dtype_that_no_family_computes_is_left_out() -> None:
    """Shapes in another dtype cost a sentence; where none is left that is an error with the sentence."""
    made = make_cases([Shape(1, 2, 3, "fp64"), Shape(1, 2, 3, "bf16")], find(), "dense_splitk")
    assert len(made.cases) == 1
    assert made.notes[0].startswith("1 shape left out: dense_splitk computes in bf16 acc32")
    with pytest.raises(UsageError, match=r"None of the shapes can be measured\. 1 shape left out"):
        make_cases([Shape(1, 2, 3, "fp64")], find(), "dense_splitk")


def test_without_a_family_that_makes_cases() -> None:
    """Where no family makes cases, shapes cannot be measured."""
    with pytest.raises(UsageError, match="No family makes cases"):
        make_cases([Shape(1, 2, 3)], Catalog())


# sums


def rated(*rows: tuple[str, str, float | None]):
    """Rows of (case, implementation, seconds), None for a broken one."""
    made = [
        runs.row(name, seconds, case=case)
        if seconds
        else runs.row(name, case=case, status="broken", reason="x", median_s=None)
        for case, name, seconds in rows
    ]
    return rate(made)


def selection(**groups: dict[str, int]) -> dict[str, object]:
    """A run's selection with these calls."""
    return {
        "made": {"calls": {group: {f"f/{case}": n for case, n in calls.items()} for group, calls in groups.items()}}
    }


def texts(table: Table) -> list[tuple[str, ...]]:
    """A table's cells."""
    return [tuple(cell.text for cell in row) for row in table.rows]


def test_times_are_multiplied_by_calls() -> None:
    """10 calls of 2 us and 3 of 5 us are 35 us; with one call of each in another group, 7 us."""
    rows = rated(("a", "cublas", 2e-6), ("b", "cublas", 5e-6))
    table, note = totals("f", rows, selection(one={"a": 10, "b": 3}, two={"a": 1, "b": 1}), ["cold"])
    assert isinstance(table, Table)
    assert [column.header for column in table.columns] == ["implementation", "cache", "us, one", "us, two"]
    assert texts(table) == [("cublas", "cold", "35.0", "7.00")]
    assert isinstance(note, Notes)
    assert note.lines == ("Calls: 13 (one), 2 (two).",)


def test_only_what_is_ok_everywhere_has_a_total() -> None:
    """An implementation that is broken on one case has no total, nor one that has no row there; both are named."""
    rows = rated(
        ("a", "cublas", 2e-6), ("b", "cublas", 5e-6), ("a", "mine", 1e-6), ("b", "mine", None), ("a", "half", 1e-6)
    )
    table, note = totals("f", rows, selection(all={"a": 1, "b": 1}), ["cold"])
    assert isinstance(table, Table) and isinstance(note, Notes)
    assert texts(table) == [("cublas", "cold", "7.00")]
    assert note.lines[1] == "No total for what is not ok on every case: mine, half."


def test_cases_that_were_not_measured_are_counted() -> None:
    """A total is over the cases of the run, and says how many counted ones are missing."""
    table, note = totals("f", rated(("a", "cublas", 2e-6)), selection(all={"a": 4, "b": 1}), ["cold"])
    assert isinstance(table, Table) and isinstance(note, Notes)
    assert texts(table) == [("cublas", "cold", "8.00")]
    assert note.lines[-1] == "Not in this run, and so in no total: 1 case."


def test_without_counts_there_are_no_totals() -> None:
    """A run of the catalog, of another family, or of shapes that nobody counted has none."""
    rows = rated(("a", "cublas", 2e-6))
    assert totals("f", rows, {}, ["cold"]) == []
    assert totals("f", rows, {"made": {"cases": [], "calls": {}}}, ["cold"]) == []
    assert totals("g", rows, selection(all={"a": 4}), ["cold"]) == []


# the commands


def test_run_measures_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shapes of a file are measured and summed; a run interrupted after one is completed without the file."""
    monkeypatch.setattr("gemmgate.suite.cli.run.known_limits", lambda worker, store: Limits())
    (tmp_path / "s.csv").write_text("m,n,k,dtype,count\n2,8,64,fp32,3\n4,8,64,fp32,2\n2,8,64,fp32,2\n")
    store = ["--results", tmp_path / "r"]
    result = called("run", "--shapes", tmp_path / "s.csv", "--impl", "cublas", "--device", "cpu", *store)
    assert result.exit_code == 0, result.stderr
    assert "measured as dense_splitk: 3 dense." in result.said
    assert "dense_splitk: medians times calls, summed" in result.stdout
    assert "Calls: 7." in result.stdout
    (tmp_path / "s.csv").unlink()
    finished = Store(tmp_path / "r").load("latest")
    interrupted(Store(tmp_path / "again"), replace(finished, rows=()), finished.rows[0])
    again = ["--resume", "latest", "--results", tmp_path / "again"]
    (tmp_path / "t.csv").write_text("m,n,k\n1,2,3\n")
    assert called("run", "--shapes", tmp_path / "t.csv", *again).exit_code == 2
    assert called("run", "--device", "cpu", *again).exit_code == 0
    shown = json.loads(called("show", "--format", "json", "--results", tmp_path / "again").stdout)
    assert [row["case"] for row in shown["rows"]] == ["m2-n8-k64-fp32", "m4-n8-k64-fp32"]
    calls = {"": {"dense_splitk/m2-n8-k64-fp32": 5, "dense_splitk/m4-n8-k64-fp32": 2}}
    assert shown["run"]["selection"]["made"]["calls"] == calls


def test_list_names_what_would_be_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`list` takes shapes too."""
    monkeypatch.setattr("gemmgate.suite.cli.list._worker", lambda device, suites: (None, "no worker"))
    (tmp_path / "s.csv").write_text("m,n,k\n2,8,64\n")
    result = called("list", "--shapes", tmp_path / "s.csv", "--dtype", "fp32", "--json", "--impl", "cublas")
    (entry,) = json.loads(result.stdout)
    assert (entry["name"], entry["origin"], entry["tags"]) == ("m2-n8-k64-fp32", "s.csv, line 2", ["dense"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--shapes", "none.csv"], "Cannot read none.csv: No such file or directory."),
        (["--shapes", "broken.csv"], "broken.csv, line 2: k is 'x'"),
        (["--shapes", "good.csv", "--dtype", "bf61"], "--dtype: 'bf61' is no dtype known here"),
        (["--shapes", "good.csv", "--family", "a,b"], "--family names the one family"),
        (["--shapes", "good.csv", "--family", "nothing"], "No family that makes cases of m, n and k matches 'nothing'"),
        (["--shapes", "good.csv", "--tokens", "4"], "--tokens means nothing without --config"),
    ],
)
def test_bad_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], said: str) -> None:
    """What is wrong with a file or an option is a sentence with exit code 2."""
    (tmp_path / "good.csv").write_text("m,n,k\n1,2,3\n")
    (tmp_path / "broken.csv").write_text("m,n,k\n1,2,x\n")
    monkeypatch.chdir(tmp_path)
    result = called("run", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.said
