"""Series as one page that works without a network: what to plot is chosen in the browser.

The page draws with `plotly.min.js`, which stands beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from gemmgate.suite.report.rows import finite
from gemmgate.suite.series import Place, Point, Series, Step, newest_method

SCRIPT = "plotly.min.js"
REPORT = "report.html"
"""The page of the newest runs, beside this one."""


def history_page(
    series: Series,
    steps: Mapping[Place, Sequence[Step]],
    notes: Sequence[str] = (),
    changes: Sequence[str] = (),
) -> str:
    """HTML. Every series is in it, with the interval and the run of each point; `changes` are those of the method."""
    method = newest_method(series)
    data = {
        "series": [
            _series(place, points, steps.get(place, ()), method)
            # The page opens with the first: that of the method in use.
            for place, points in sorted(series.items(), key=lambda item: -item[0].method)
        ],
        "notes": [
            *(f"Left out: {note}." for note in notes),
            *(f"{change[:1].upper() + change[1:]}." for change in changes),
        ],
    }
    # "</" would end the script that the data stands in.
    text = json.dumps(finite(data), separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    return _PAGE.replace("@SCRIPT@", SCRIPT).replace("@REPORT@", REPORT).replace("@DATA@", text)


def _series(place: Place, points: Sequence[Point], steps: Sequence[Step], method: int) -> dict[str, Any]:
    quantity = place.quantity if place.method == method else f"{place.quantity} by method {place.method}"
    return {
        "view": [place.machine, f"{place.family} {quantity}", place.case, place.conditions],
        "interval": place.quantity == "seconds",
        "name": place.implementation,
        "unit": place.unit,
        "points": [_point(point) for point in points],
        "steps": [[step.index, step.ratio] for step in steps],
    }


def _point(point: Point) -> list[Any]:
    row, run = point.row, point.run
    day = datetime.fromtimestamp(point.committed_s, UTC).strftime("%Y-%m-%d %H:%M")
    said = [
        f"commit {point.commit[:10]} of {day}",
        f"run {row.run_id or run.id}",
        f"board {row.board or run.machine.board}",
        f"torch {run.stack.torch}",
    ]
    said += [f"driver {run.stack.driver}"] if run.stack.driver else []
    said += [f"{row.status} ({row.reason})"] if row.status != "ok" else []
    said += [f"marked {', '.join(row.marks)}"] if row.marks else []
    return [point.committed_s, point.commit[:10], point.value, row.low_s, row.high_s, "<br>".join(said)]


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>gemmgate: history</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 76rem; padding: 0 1rem; color: #222 }
label { margin-right: 1rem; white-space: nowrap }
select { font: inherit; max-width: 100% }
#plot { height: 33rem }
li, p { color: #555 }
</style>
<h1>History</h1>
<div id="choices"></div>
<div id="plot"></div>
<p><a href="@REPORT@">The newest runs</a> · <a href="index.html">asv's pages, which take a server</a></p>
<p>By commit; lower is better. Bars are 95 % intervals of the median within one process, which the next launch may
leave by a percent. A gap is a measurement that failed. Arrows mark steps.</p>
<ul id="notes"></ul>
<script src="@SCRIPT@"></script>
<script>
const data = @DATA@;
const axes = ["machine", "family", "case", "conditions"];
const chosen = [];

function matching(depth) {
  return data.series.filter(one => chosen.slice(0, depth).every((value, i) => one.view[i] === value));
}

function choose() {
  const place = document.getElementById("choices");
  place.replaceChildren();
  axes.forEach((name, i) => {
    const values = [...new Set(matching(i).map(one => one.view[i]))];
    if (!values.includes(chosen[i])) chosen[i] = values[0];
    const label = document.createElement("label"), select = document.createElement("select");
    for (const value of values) select.add(new Option(value, value, false, value === chosen[i]));
    select.onchange = () => { chosen[i] = select.value; choose(); };
    label.append(name + " ", select);
    place.append(label);
  });
  draw(matching(axes.length));
}

function draw(series) {
  const scale = series.length && series[0].unit === "seconds" ? 1e6 : 1;
  const unit = scale === 1 ? (series.length ? series[0].unit : "") : "us";
  const times = series.flatMap(one => one.points.map(point => [point[0], point[1]])).sort((a, b) => a[0] - b[0]);
  const order = [...new Set(times.map(one => one[1]))];
  const arrows = [];
  const dashes = ["solid", "dash", "dot", "dashdot"], markers = ["circle", "square", "diamond", "cross"];
  const traces = series.map((one, i) => {
    const again = Math.floor(i / 10);  // colours come round after ten
    const part = i => one.points.map(point => point[i] === null ? null : point[i] * scale);
    const value = part(2), low = part(3), high = part(4);
    for (const [at, ratio] of one.steps) {
      const change = (ratio > 1 ? "+" : "") + ((ratio - 1) * 100).toFixed(1) + " %";
      arrows.push({x: one.points[at][1], y: value[at], text: one.name + " " + change});
    }
    return {
      name: one.name, x: one.points.map(point => point[1]), y: value, mode: "lines+markers",
      line: {dash: dashes[again % 4]}, marker: {symbol: markers[again % 4]},
      text: one.points.map(point => point[5]), hovertemplate: "%{y:.4g} " + unit + "<br>%{text}",
      error_y: !one.interval ? undefined : {
        symmetric: false, thickness: 1,
        array: value.map((v, i) => v === null || high[i] === null ? 0 : high[i] - v),
        arrayminus: value.map((v, i) => v === null || low[i] === null ? 0 : v - low[i]),
      },
    };
  });
  Plotly.react("plot", traces, {
    title: {text: chosen.slice(2).join(", ")}, xaxis: {type: "category", categoryarray: order, automargin: true},
    yaxis: {title: {text: unit}}, annotations: arrows, showlegend: true,
  }, {responsive: true});
}

for (const note of data.notes) {
  const item = document.createElement("li");
  item.textContent = note;
  document.getElementById("notes").append(item);
}
choose();
</script>
</html>
"""
