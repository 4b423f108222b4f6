"""The page's tables as HTML: they need no script to be read, and every number leads to its measurement."""

from __future__ import annotations

from collections.abc import Sequence

from gemmgate.suite.compare import Rated
from gemmgate.suite.records import Row
from gemmgate.suite.report import units
from gemmgate.suite.report.best import counts, is_same
from gemmgate.suite.report.means import left_out, mean_text
from gemmgate.suite.report.page.markup import name, tag, text
from gemmgate.suite.report.page.sections import Section
from gemmgate.suite.report.times import Line, group


def summary(section: Section, family: str) -> str:
    """A line an implementation: its mean, and in how many cases it is faster, the same and slower."""
    cache = next(iter(section.caches(family)), "")
    timed = [r for r in section.timed(family) if r.row.cache == cache]
    cases = len({r.row.case for r in timed})
    lines = []
    for implementation in dict.fromkeys(r.row.implementation for r in timed):
        mine = [r for r in timed if r.row.implementation == implementation]
        ratios = [r.ratio for r in mine if r.ratio and implementation != r.yardstick]
        if not ratios:
            continue
        estimates = [ratio.estimate for ratio in ratios]
        cells = [_number(str(n), n, klass="") for n in counts(ratios)]
        cells += [_number(units.speedup(value), value, klass="wide") for value in (max(estimates), min(estimates))]
        mean = mean_text(mine)
        lines.append(
            tag(
                "tr",
                tag("th", name(implementation), scope="row"),
                _number(mean, float(mean.partition(" ")[0]), klass=""),
                *cells,
                tag("td", text(left_out(mine, cases)), class_="wide"),
            )
        )
    if not lines:
        return ""
    headers = ("implementation", "mean (cases)", "faster", "same", "slower", "best", "worst", "not counted")
    caption = f"Speed-up, {cache or 'as measured'}: geometric mean, and how many cases are faster, the same, slower"
    return _table(headers, lines, caption, numeric=range(1, 7), wide=(5, 6, 7))


def measurements(section: Section, family: str) -> str:
    """A line for each implementation of each case."""
    lines = [line for line in group(section.timed(family)) if line.first_ok()]
    if not lines:
        return ""
    caches = section.caches(family)
    rates = units.rate_columns([lead.row for line in lines if (lead := line.first_ok())], section.limits)
    headers = ["case", "implementation", f"{caches[0]} us".strip(), "speed-up", "±"]
    headers += [header for cache in caches[1:] for header in (f"{cache} us", f"speed-up, {cache}")]
    first_wide = len(headers)
    headers += [*(rate.header for rate in rates), "roof", "error", "kernels", "compile s", "marks"]
    body = [_line(line, caches, rates, section) for line in lines]
    wide = (4, *range(6, first_wide, 2), *range(first_wide, len(headers)))
    return _table(headers, body, f"{family}: every measurement", numeric=range(2, len(headers) - 1), wide=wide)


def _line(line: Line, caches: Sequence[str], rates: Sequence[units.RateColumn], section: Section) -> str:
    lead = line.first_ok()
    assert lead is not None
    row = lead.row
    cells = [tag("th", name(line.case), scope="row"), tag("td", name(line.label))]
    cells += [
        _time(line.by_cache.get(caches[0])),
        _speedup(line.by_cache.get(caches[0])),
        _interval(line.by_cache.get(caches[0])),
    ]
    for cache in caches[1:]:
        cells += [_time(line.by_cache.get(cache)), _speedup(line.by_cache.get(cache), "wide")]
    cells += [
        *(_rate(rate.text(row, section.limits)) for rate in rates),
        _number(units.share(lead.roof_share), lead.roof_share, klass="wide"),
        _number(units.multiple(lead.error_vs_yardstick), lead.error_vs_yardstick, klass="wide"),
        _number(units.plain(row.kernels), row.kernels, klass="wide"),
        _number(units.NONE if row.compile_s is None else f"{row.compile_s:.2f}", row.compile_s, klass="wide"),
        tag("td", text(", ".join(row.marks)), class_="wide"),
    ]
    return tag("tr", *cells)


def failures(section: Section) -> str:
    """What has no result, and why."""
    found = [r.row for r in section.rated if r.row.status != "ok"]
    lines = [
        tag(
            "tr",
            tag("th", _link(row, text(row.status)), scope="row"),
            *(tag("td", name(cell)) for cell in (row.case, row.implementation, row.cache)),
            *(tag("td", text(cell), class_="wide") for cell in (row.reason, row.detail)),
        )
        for row in found
    ]
    headers = ("status", "case", "implementation", "cache", "reason", "detail")
    return _table(headers, lines, "Without a result", numeric=(), wide=(4, 5)) if lines else ""


def values(section: Section) -> str:
    """What is no time: phases, counts, what a compiler said."""
    found = [r.row for r in section.rated if r.row.kind != "time" and r.row.status == "ok"]
    lines = [
        tag(
            "tr",
            tag("th", name(row.case), scope="row"),
            *(tag("td", text(cell)) for cell in (row.implementation, f"{row.kind} {row.phase}".strip())),
            tag("td", text(" ".join(word for word in (row.target, row.cache) if word)), class_="wide"),
            tag("td", _link(row, text(units.plain(row.value))), class_="n", data_v=row.value),
            tag("td", text(row.unit)),
        )
        for row in found
    ]
    headers = ("case", "implementation", "what", "where", "value", "unit")
    return _table(headers, lines, "Phases, counts and what compilers say", numeric=(4,), wide=(3,)) if lines else ""


def _table(
    headers: Sequence[str], lines: Sequence[str], caption: str, *, numeric: Sequence[int], wide: Sequence[int]
) -> str:
    """A table that the page's script makes sortable, and filterable where it is long."""
    heads = [
        tag(
            "th",
            tag("button", text(header), type="button"),
            scope="col",
            class_=" ".join(word for word, holds in (("n", i in numeric), ("wide", i in wide)) if holds) or None,
        )
        for i, header in enumerate(headers)
    ]
    table = tag("table", tag("caption", text(caption)), tag("thead", tag("tr", *heads)), tag("tbody", *lines))
    return tag("div", table, class_="scroll", tabindex="0", role="group", aria_label=caption)


def _number(shown: str, value: float | None, *, klass: str, row: Row | None = None) -> str:
    return tag("td", _link(row, text(shown)) if row else text(shown), class_=f"n {klass}".strip(), data_v=value)


def _rate(shown: str) -> str:
    return _number(shown, None if shown in ("", units.NONE) else float(shown), klass="wide")


def _link(row: Row, content: str) -> str:
    return tag("a", content, href=f"#m-{row.id}")


def _time(rated: Rated | None) -> str:
    if rated is None:
        return _number(units.NONE, None, klass="")
    row = rated.row
    if row.status != "ok":
        return _number(row.status, None, klass="bad", row=row)
    return _number(units.microseconds(row.median_s), row.median_s, klass="", row=row)


def _speedup(rated: Rated | None, klass: str = "") -> str:
    if rated is None or rated.ratio is None:
        return _number(units.NONE, None, klass=klass)
    ratio = rated.ratio
    if rated.row.implementation == rated.yardstick:
        return _number("1", 1.0, klass=f"same {klass}")
    style = "same" if is_same(ratio) else "win" if ratio.estimate > 1 else "loss"
    sign = "~" if style == "same" else ""
    return _number(
        sign + units.speedup(ratio.estimate), ratio.estimate, klass=f"{style} {klass}".strip(), row=rated.row
    )


def _interval(rated: Rated | None) -> str:
    if rated is None or rated.ratio is None or rated.row.implementation == rated.yardstick:
        return _number("", None, klass="wide")
    return _number(units.plus_minus(rated.ratio), rated.ratio.high / rated.ratio.estimate, klass="wide")
