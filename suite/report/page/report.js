"use strict";
const DARK = matchMedia("(prefers-color-scheme: dark)");
const COLOURS = {
  light: ["#0072b2", "#c44e00", "#00795a", "#a3397a", "#5b4bc4", "#7a5c00", "#3f6b7d", "#a01c28", "#4d4d4d", "#2f6b1f"],
  dark: ["#56b4e9", "#ff9d5c", "#2fc79b", "#e79ac6", "#b3a6ff", "#e0c14a", "#8fc3d6", "#ff8a94", "#c9c9c9", "#9ad07a"],
};
const SYMBOLS = ["circle", "square", "diamond", "cross", "x", "triangle-up", "triangle-down", "star", "pentagon", "hexagon"];
const DIVERGING = {
  light: [[0, "#ec8b57"], [0.25, "#f6c3a5"], [0.5, "#f2f2f2"], [0.75, "#a9d2f2"], [1, "#5aa9e6"]],
  dark: [[0, "#8f4a22"], [0.25, "#5e3a28"], [0.5, "#2b3038"], [0.75, "#264b6b"], [1, "#1f6aa5"]],
};
let rows = {};
const named = [];  // implementations in the order of their first appearance: each keeps its colour on the page

async function unpacked(id) {
  const packed = Uint8Array.from(atob(document.getElementById(id).textContent), one => one.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

function made(name, text, properties) {
  const element = Object.assign(document.createElement(name), properties || {});
  if (text !== undefined) element.textContent = text;
  return element;
}

// Light or dark

function theme() {
  return document.documentElement.dataset.theme || (DARK.matches ? "dark" : "light");
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function rank(name) {
  if (!named.includes(name)) named.push(name);
  return named.indexOf(name);
}

// Figures

function escaped(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function boxes(ids) {
  return ids.map(id => {
    const row = rows[id], name = escaped(row.implementation), place = name + ", " + (row.median_s * 1e6).toPrecision(3) + " us";
    return {
      type: "box", orientation: "h", name, x: row.samples_s.map(one => 100 * (one / row.median_s - 1)),
      y: row.samples_s.map(() => place), boxpoints: "all", jitter: 0.6, pointpos: 0,
      text: row.samples_s.map(one => (one * 1e6).toPrecision(5) + " us"), hovertemplate: "%{text}<extra></extra>",
      customdata: row.samples_s.map(() => id), role: "box",
    };
  });
}

function choiceScale(count, colours) {
  const steps = [];
  for (let i = 0; i < count; i++) steps.push([i / count, colours[i % 10]], [(i + 1) / count, colours[i % 10]]);
  return steps;
}

function coloured(trace) {
  const colours = COLOURS[theme()], one = {...trace};
  if (one.scale === "diverging") {
    const ticks = [0.25, 0.5, 0.8, 1, 1.25, 2, 4].filter(tick => Math.abs(Math.log2(tick)) <= one.zmax);
    Object.assign(one, {colorscale: DIVERGING[theme()], textfont: {color: colour("--text")}, colorbar: {
      orientation: "h", thickness: 10, y: -0.02, yanchor: "top", len: 0.6,
      tickvals: ticks.map(Math.log2), ticktext: ticks.map(tick => tick + "x"), tickfont: {color: colour("--soft")},
    }});
  } else if (one.scale === "choices") {
    Object.assign(one, {colorscale: choiceScale(one.choices.length, colours), showscale: false,
      textfont: {color: theme() === "dark" ? "#000" : "#fff"}});
  } else if (one.role === "choice") {
    one.marker = {color: colours[one.choice % 10], symbol: "square", size: 12};
  } else if (one.role === "reference") {
    one.line = {color: colour("--soft"), width: 2, dash: "dot"};
  } else {
    const at = rank(one.name), chosen = colours[at % colours.length];
    one.marker = {color: chosen, symbol: SYMBOLS[at % SYMBOLS.length], size: one.role === "box" ? 3 : 7};
    if (one.role === "box") Object.assign(one, {line: {color: chosen, width: 1}, fillcolor: "rgba(0,0,0,0)"});
  }
  return one;
}

function draw(figure, index, view) {
  const place = document.getElementById("plot-" + index);
  const {minWidth, ...layout} = view.layout;
  place.style.minWidth = minWidth ? minWidth + "px" : "";
  const traces = view.traces.flatMap(one => one.samples_of ? boxes(one.samples_of) : [one]).map(coloured);
  const boxed = traces.some(one => one.type === "box");
  const axis = {gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--line")};
  const narrow = place.clientWidth < 600;
  const full = {
    font: {color: colour("--text"), size: 12}, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: {l: 10, r: 10, t: 20, b: 40}, dragmode: false, hovermode: "closest",
    legend: {orientation: "h", y: 1.02, yanchor: "bottom", x: 0}, showlegend: !boxed && traces.length > 1, ...layout,
    xaxis: {...axis, ...layout.xaxis}, yaxis: {...axis, ...(boxed ? {type: "category", automargin: true, autorange: "reversed"} : {}), ...layout.yaxis},
  };
  if (narrow && full.showlegend) full.height += 20 * traces.length;
  Plotly.react(place, traces, full, {responsive: true, displayModeBar: false}).then(() => {
    place.removeAllListeners("plotly_click");
    place.on("plotly_click", event => {
      const id = event.points.map(point => point.customdata).find(Boolean);
      if (id) location.hash = "m-" + id;
    });
  });
}

function choose(figure, index, chosen) {
  const place = document.getElementById("choices-" + index);
  const focused = [...place.querySelectorAll("select")].indexOf(document.activeElement);
  place.replaceChildren();
  const matching = depth => figure.views.filter(view => chosen.slice(0, depth).every((value, i) => view.key[i] === value));
  figure.choices.forEach((name, i) => {
    const values = [...new Set(matching(i).map(view => view.key[i]))];
    if (!values.includes(chosen[i])) chosen[i] = values[0];
    if (values.length < 2) return;
    const label = made("label", name), select = made("select");
    for (const value of values) select.add(new Option(value, value, false, value === chosen[i]));
    select.onchange = () => { chosen[i] = select.value; choose(figure, index, chosen); };
    label.append(select);
    place.append(label);
  });
  if (focused >= 0) place.querySelectorAll("select")[focused]?.focus();
  draw(figure, index, matching(figure.choices.length)[0]);
}

// One measurement

function copied(button, text) {
  navigator.clipboard.writeText(text).then(() => { button.textContent = "Copied"; }, () => { button.textContent = "Select it and copy"; });
}

function written(value) {
  if (typeof value === "number" && value && Math.abs(value) < 1e-3) return value.toExponential(5);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function show() {
  const dialog = document.getElementById("measurement"), row = rows[location.hash.slice(3)];
  if (!location.hash.startsWith("#m-") || !row) {
    if (dialog.open) dialog.close();
    return;
  }
  const close = made("button", "Close", {type: "button", onclick: () => dialog.close()});
  const copy = made("button", "Copy", {type: "button"});
  copy.onclick = () => copied(copy, row.repro);
  const list = made("dl");
  for (const [name, value] of Object.entries(row)) {
    if (name === "repro") continue;
    list.append(made("dt", name), made("dd", written(value)));
  }
  const title = made("h2", row.family + " / " + row.implementation + " / " + row.case, {id: "measured"});
  dialog.replaceChildren(title, made("div", "To measure it again:"), made("pre", row.repro), copy, " ", close, list);
  if (!dialog.open) dialog.showModal();
}

// Tables

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, at) => {
    head.querySelector("button").onclick = () => {
      const down = head.getAttribute("aria-sort") === "ascending" || (head.classList.contains("n") && !head.hasAttribute("aria-sort"));
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const number = head.classList.contains("n"), value = row => {
        const cell = row.cells[at];
        return number ? (cell.dataset.v === undefined ? NaN : Number(cell.dataset.v)) : cell.textContent;
      };
      const order = number ? (a, b) => a - b : (a, b) => a.localeCompare(b, "en", {numeric: true});
      const sorted = [...body.rows].map(row => [value(row), row]).sort(([a], [b]) => {
        if (number && (isNaN(a) || isNaN(b))) return isNaN(a) - isNaN(b);  // what has no number stays last
        return down ? order(b, a) : order(a, b);
      });
      body.append(...sorted.map(([, row]) => row));
    };
  });
}

function filterable(table) {
  const body = table.tBodies[0];
  if (body.rows.length < 12) return;
  const label = made("label", "Filter "), input = made("input", undefined, {type: "search", placeholder: "words, such as k32768 cublas"});
  const said = made("span", body.rows.length + " lines");
  said.setAttribute("role", "status");
  input.oninput = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of body.rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every(word => text.includes(word));
      shown += !row.hidden;
    }
    said.textContent = shown + " of " + body.rows.length + " lines";
  };
  label.append(input);
  const bar = made("div", undefined, {className: "filter"});
  bar.append(label, said);
  table.parentElement.before(bar);
}

async function start() {
  for (const table of document.querySelectorAll("table")) { sortable(table); filterable(table); }
  const data = JSON.parse(await unpacked("data"));
  rows = data.rows;
  for (const row of Object.values(rows)) rank(escaped(row.implementation));
  addEventListener("hashchange", show);
  document.getElementById("measurement").addEventListener("close", () => history.replaceState(null, "", location.pathname + location.search));
  show();
  const library = made("script", await unpacked("plotly"));
  document.head.append(library);
  const redraw = () => data.figures.forEach((figure, index) => choose(figure, index, figure.chosen ||= []));
  redraw();
  const button = document.getElementById("theme");
  button.hidden = false;
  button.onclick = () => { document.documentElement.dataset.theme = theme() === "dark" ? "light" : "dark"; redraw(); };
  DARK.addEventListener("change", redraw);
  document.documentElement.dataset.ready = "yes";
}
start();
