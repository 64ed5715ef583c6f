// Draws measured points, lets a reader choose one, and shows the record behind it. Nothing is interpolated.
(() => {
  const root = document.querySelector(".explorer:not(.ready)");
  const data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
  const find = (selector) => root.querySelector(selector);
  const pick = Object.fromEntries(["paper", "text", "quality", "cost", "line"].map((one) => [one, find(`[name=${one}]`)]));
  const choice = find(".choice");
  let series = data[0], point = null, trouble = "";

  const SHAPES = [ // as many as colors, so that color is not the only sign of a line
    "M0-5a5 5 0 1 1 0 10a5 5 0 1 1 0-10z", "M-4.5-4.5h9v9h-9z", "M0-6 5.5 4.5h-11z", "M0-6 5 0 0 6-5 0z",
    "M0 6-5.5-4.5h11z", "M-2-5h4v3h3v4h-3v3h-4v-3h-3v-4h3z", "M-5-5 5 5M5-5-5 5", "M-5 0h10M0-5v10",
    "M-5-2.5h10v5h-10z", "M-2.5-5h5v10h-5z", "M-6 0 0-3 6 0 0 3z", "M0-3 3 5h-6z"];

  function make(tag, attributes, ...children) {
    const drawn = ["svg", "g", "path", "text", "circle", "title"].includes(tag);
    const node = drawn ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }
  const options = (select, names) => select.replaceChildren(...names.map((one) => make("option", {}, one)));
  const unique = (names) => [...new Set(names)];
  const text = (one) => one.text;
  const printed = (one) => (one.match ? series.printed.filter((other) => other.match === one.match) : []);
  const best = (points) => { // among those that the paper prints too, if there are any
    const known = points.filter((one) => printed(one).length);
    return (known.length ? known : points).reduce((one, other) => (other.quality[0] < one.quality[0] ? other : one));
  };
  const lines = () => unique(series.points.map((one) => one.line));

  function written(value) { // four digits, with a prefix for large numbers
    if (value === 0) return "0";
    const size = Math.abs(value);
    for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (size >= 1e4 && size >= unit) return `${Number((value / unit).toPrecision(4))} ${name}`;
    return `${Number(value.toPrecision(4))}`;
  }
  const quality = ([value, low, high]) => written(value) + (low === undefined ? "" : ` [${written(low)}, ${written(high)}]`);

  function scale(values, length) { // pixel positions and ticks; logarithmic if values are far apart
    const low = Math.min(...values), high = Math.max(...values), log = low > 0 && high / low > 8;
    const f = log ? Math.log : (value) => value;
    const margin = (f(high) - f(low) || Math.abs(f(high)) || 1) * 0.08;
    const [from, to] = [f(low) - margin, f(high) + margin];
    const place = (value) => length * (f(value) - from) / (to - from);
    const raw = (to - from) / Math.max(2, Math.floor(length / 60)), power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 5, 10].find((one) => one * power >= raw), ticks = [];
    if (log) {
      for (let decade = Math.floor(Math.log10(low)) - 1; decade <= Math.log10(high) + 1; decade++)
        for (const one of [1, 2, 5]) ticks.push(one * 10 ** decade);
    } else for (let one = Math.ceil(from / step) * step; one <= to; one += step) ticks.push(Number(one.toPrecision(12)));
    return {place, ticks: ticks.filter((one) => place(one) >= 0 && place(one) <= length)};
  }

  function draw(svg, title, points, chosen, onto) {
    const width = Math.max(240, svg.parentElement.clientWidth), height = 300, [left, top, bottom] = [54, 40, 46];
    const cost = pick.cost.value, shown = points.filter((one) => cost in one.costs);
    svg.setAttribute("width", width), svg.setAttribute("height", height);
    svg.setAttribute("aria-label", `${title}: ${series.quality} against ${cost}, ${shown.length} points.`);
    svg.replaceChildren(make("text", {x: 0, y: 12, "font-weight": 600}, title),
      make("text", {x: 0, y: 28}, `${series.quality} (lower is better)`));
    if (!shown.length) return;
    const x = scale(shown.map((one) => one.costs[cost]), width - left - 12);
    const y = scale(shown.map((one) => one.quality[0]), height - top - bottom);
    const across = (one) => left + x.place(one.costs[cost]), up = (value) => height - bottom - y.place(value);
    const within = (value) => Math.min(height - bottom, Math.max(top, up(value)));
    svg.append(make("path", {class: "axis", d: `M${left} ${top}V${height - bottom}H${width - 12}`}));
    let last = -Infinity;
    for (const one of x.ticks) {
      const at = left + x.place(one);
      svg.append(make("path", {class: "grid", d: `M${at} ${top}V${height - bottom}`}));
      if (at - last < 52) continue;
      svg.append(make("text", {x: at, y: height - bottom + 16, "text-anchor": "middle"}, written(one)));
      last = at;
    }
    last = Infinity;
    for (const one of y.ticks) {
      svg.append(make("path", {class: "grid", d: `M${left} ${up(one)}H${width - 12}`}));
      if (last - up(one) < 16) continue;
      svg.append(make("text", {x: left - 6, y: up(one) + 4, "text-anchor": "end"}, written(one)));
      last = up(one);
    }
    svg.append(make("text", {x: width - 12, y: height - 8, "text-anchor": "end"}, cost));
    for (const one of shown) {
      const k = lines().indexOf(one.line), mark = make("g", {style: `--c: var(--l${Math.max(0, k) % SHAPES.length})`});
      const [, low, high] = one.quality, at = `translate(${across(one)} ${up(one.quality[0])})`;
      if (low !== undefined && chosen.includes(one))
        mark.append(make("path", {class: "bar", d: `M${across(one)} ${within(low)}V${within(high)}`}));
      mark.append(make("path", {class: "dot", d: SHAPES[Math.max(0, k) % SHAPES.length], transform: at},
        make("title", {}, `${named(one)}: ${quality(one.quality)}`)));
      if (onto) mark.addEventListener("click", () => onto(one));
      svg.append(mark);
      if (chosen.includes(one)) svg.append(make("circle", {class: "ring", r: 10, transform: at}));
    }
  }
  const named = (one) => [one.line, ...Object.entries(one.settings).map(([name, value]) => { // "window, tokens"
    const [what, unit] = name.split(", ");
    return `${what} ${value} ${unit}`;
  })].join(", ");

  function sliders() { // one per setting; it stops only at measured values
    choice.querySelectorAll(".snap").forEach((one) => one.remove());
    for (const name of series.settings) {
      const values = unique(series.points.filter((one) => one.line === point.line).map((one) => one.settings[name]))
        .sort((one, other) => one - other);
      const input = make("input", {type: "range", min: 0, max: Math.max(0, values.length - 1), step: 1});
      input.value = values.indexOf(point.settings[name]);
      input.disabled = values.length < 2;
      input.setAttribute("aria-valuetext", `${point.settings[name]}`);
      input.addEventListener("input", () => {
        const near = (one) => series.settings.reduce((sum, key) => sum + Math.abs(one.settings[key] - point.settings[key]), 0);
        const fits = series.points.filter((one) => one.line === point.line && one.settings[name] === values[input.value]);
        choose(fits.reduce((one, other) => (near(other) < near(one) ? other : one)), name);
      });
      choice.append(make("label", {class: "snap", "data-setting": name},
        make("span", {}, name, make("output", {}, `${point.settings[name]}`)), input));
    }
  }

  function choose(one, keep = "") {
    point = one;
    show();
    if (keep) choice.querySelector(`[data-setting="${keep}"] input`)?.focus();
  }

  function show() {
    const twin = printed(point);
    options(pick.line, lines());
    pick.line.value = point.line;
    sliders();
    find(".papers").hidden = !series.printed.some((one) => pick.cost.value in one.costs);
    draw(find(".ours svg"), "Ours", series.points, [point], choose);
    draw(find(".papers svg"), "The paper", series.printed, twin);
    find(".key").replaceChildren(...lines().map((line, k) => make("li", {}, make("svg", {viewBox: "-7 -7 14 14",
      style: `--c: var(--l${k % SHAPES.length})`, "aria-hidden": "true"},
      make("path", {class: "dot", d: SHAPES[k % SHAPES.length]})), line)));
    const said = named(point);
    find(".status").textContent = `${trouble}${said[0].toUpperCase()}${said.slice(1)}. Ours: ${quality(point.quality)}` +
      (twin.length ? `; the paper: ${quality(twin[0].quality)} (${twin[0].source}).`
      : series.generated ? ". No paper uses generated text." : "; the paper prints no matching point.");
    trouble = "";
    const rows = [["quality", `${series.quality}: ${quality(point.quality)}`],
      ...Object.entries(point.costs).map(([name, value]) => [name, written(value)])];
    find(".chosen tbody").replaceChildren(...rows.map(([name, value]) =>
      make("tr", {}, make("th", {scope: "row"}, name), make("td", {}, value))),
      make("tr", {}, make("th", {scope: "row"}, point.records.length > 1 ? "records" : "record"), make("td", {},
        ...point.records.flatMap((id, k) => [point.files[k] ? make("a", {href: point.files[k]}, id) : id, " "]))),
      make("tr", {}, make("th", {scope: "row"}, "made by"), make("td", {}, make("code", {}, point.command))));
    find(".here").href = "#" + new URLSearchParams({series: series.id, record: point.records[0], against: pick.cost.value});
  }

  function turn(found, wanted) { // to another series
    series = found;
    const papers = unique(data.map((one) => one.paper)), own = data.filter((one) => one.paper === series.paper);
    options(pick.paper, papers);
    pick.paper.value = series.paper;
    options(pick.text, unique(own.map(text)));
    pick.text.value = text(series);
    options(pick.quality, own.filter((one) => text(one) === text(series)).map((one) => one.quality));
    pick.quality.value = series.quality;
    options(pick.cost, series.costs);
    if (series.costs.includes(wanted)) pick.cost.value = wanted;
    point = best(series.points);
  }

  function restore() { // apply the address
    const hash = location.hash.slice(1), asked = new URLSearchParams(hash.includes("=") ? hash : "");
    const wanted = asked.get("series"), against = asked.get("against");
    const found = data.find((one) => one.id === wanted) ?? data[0];
    if (wanted && found.id !== wanted) trouble = `The series “${wanted}” no longer exists; another one is shown. `;
    turn(found, against);
    if (against && pick.cost.value !== against) trouble += `Nothing is measured against “${against}” here. `;
    for (const name of asked.keys()) // an address with a pattern is the playground's
      if (!["series", "record", "against"].includes(name) && !asked.has("pattern")) trouble += `Unknown name “${name}” in the address. `;
    const record = asked.get("record"), known = series.points.find((one) => one.records.includes(record));
    if (known) point = known;
    else if (record && found.id === (wanted ?? found.id)) trouble += `The record ${record} no longer exists; the best point is shown. `;
    show();
  }

  root.classList.add("ready");
  if (!data.length) return; // the tables already say that there are no records
  find(".live").hidden = false;
  pick.paper.addEventListener("change", () => (turn(data.find((one) => one.paper === pick.paper.value), pick.cost.value), show()));
  pick.text.addEventListener("change", () => (turn(data.find((one) => one.paper === series.paper &&
    text(one) === pick.text.value), pick.cost.value), show()));
  pick.quality.addEventListener("change", () => (turn(data.find((one) => one.paper === series.paper &&
    text(one) === text(series) && one.quality === pick.quality.value), pick.cost.value), show()));
  pick.cost.addEventListener("change", show);
  pick.line.addEventListener("change", () => choose(best(series.points.filter((one) => one.line === pick.line.value))));
  find(".ours svg").addEventListener("keydown", (event) => {
    const step = {ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1}[event.key], cost = pick.cost.value;
    if (!step) return;
    event.preventDefault();
    const order = series.points.filter((one) => cost in one.costs).sort((one, other) => one.costs[cost] - other.costs[cost]);
    choose(order[Math.min(order.length - 1, Math.max(0, order.indexOf(point) + step))]);
  });
  addEventListener("hashchange", restore);
  restore();
  let wide = find(".charts").clientWidth;
  new ResizeObserver(() => {
    if (wide === (wide = find(".charts").clientWidth)) return;
    root.querySelectorAll(".charts svg").forEach((svg) => svg.setAttribute("width", 0)); // otherwise they keep the box wide
    show();
  }).observe(find(".charts"));
})();
