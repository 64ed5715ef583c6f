// The patterns of repro.attention.patterns in a browser: who sees whom, drawn and counted again at every move.
(() => {
  const root = document.querySelector(".playground:not(.ready)");
  const start = JSON.parse(root.querySelector("script[type='application/json']").textContent);
  const find = (selector) => root.querySelector(selector);

  // The keys of query i for each part of a pattern, as [first, last, step]: Pattern.keys in Python.
  const KEYS = {
    full: (one, i) => [[0, one.n - 1, 1]],
    causal: (one, i) => [[0, i, 1]],
    sliding: (one, i) => [[i - (one.window - 1) * one.dilation, i, one.dilation]],
    "both sides": (one, i) => [[i - one.window / 2 * one.dilation, i + one.window / 2 * one.dilation, one.dilation]],
    blocks: (one, i) => [[i - i % one.stride, i, 1]],
    strided: (one, i) => [[i - one.stride + 1, i, 1], [i % one.stride, i, one.stride]],
    fixed: (one, i) => [[i - i % one.stride, i, 1],
      ...Array.from({length: one.summary}, (_, k) => [one.stride - 1 - k, i, one.stride])],
  };

  function keys(one, i) { // sorted, each once; in a causal pattern, global positions are causal too
    const stop = start.both_ways.includes(one.pattern) ? one.n : i + 1;
    const seen = new Set(one.global.includes(i) ? Array(stop).keys() : one.global.filter((j) => j < stop));
    for (const [first, last, step] of KEYS[one.pattern](one, i))
      for (let j = first; j <= Math.min(last, one.n - 1); j += step) if (j >= 0) seen.add(j);
    return [...seen].sort((a, b) => a - b);
  }
  const rows = (one) => Array.from({length: one.n}, (_, i) => keys(one, i));

  function reach(every, i, layers) { // how many positions query i reaches after 1, 2, ... layers
    const sizes = [];
    let known = new Set([i]);
    for (let layer = 0; layer < layers; layer++) {
      known = new Set([...known].flatMap((at) => every[at]));
      sizes.push(known.size);
    }
    return sizes;
  }

  function spans(row) { // runs of adjacent keys as [first, last]
    const found = [];
    for (const j of row) found.length && found.at(-1)[1] === j - 1 ? found.at(-1)[1] = j : found.push([j, j]);
    return found;
  }
  const path = (row, i) => spans(row).map(([first, last]) => `M${first} ${i}h${last - first + 1}v1h${first - last - 1}z`).join("");

  root.keys = keys; // for the tests
  root.reach = (one, i, layers) => reach(rows(one), i, layers);

  const controls = find(".controls"), mask = find(".mask"), inputs = {};
  const USES = {sliding: ["window", "dilation"], "both sides": ["window", "dilation"], blocks: ["stride"],
    strided: ["stride"], fixed: ["stride", "summary"]};
  let query = 0;

  function control(name, node) {
    const label = document.createElement("label"), span = document.createElement("span");
    span.append(start.names[name], document.createElement("output"));
    label.append(span, node);
    node.name = name;
    controls.append(label);
    inputs[name] = node;
  }
  const select = document.createElement("select");
  for (const [value, told] of Object.entries(start.patterns)) select.append(new Option(told, value));
  control("pattern", select);
  for (const [name, [min, max]] of Object.entries(start.ranges))
    control(name, Object.assign(document.createElement("input"), {type: "range", min, max}));

  function chosen() {
    const one = {pattern: select.value};
    for (const name of Object.keys(start.ranges)) one[name] = inputs[name].valueAsNumber;
    if (one.pattern === "both sides") one.window -= one.window % 2;
    one.summary = Math.min(one.summary, one.stride);
    one.global = Array.from({length: one.globals}, (_, k) => k * one.apart).filter((at) => at < one.n);
    return one;
  }

  function written(one) { // in Python
    const told = {full: "Full()", causal: "Causal()", blocks: `BlockLocal(${one.stride})`, strided: `Strided(${one.stride})`,
      fixed: `Fixed(${one.stride}, ${one.summary})`}[one.pattern] ??
      `SlidingWindow(${one.window}${one.dilation > 1 ? `, dilation=${one.dilation}` : ""}` +
      `${one.pattern === "both sides" ? ", causal=False" : ""})`;
    return told + (one.global.length ? ` | Global([${one.global.join(", ")}])` +
      (start.both_ways.includes(one.pattern) ? "" : " & Causal()") : "");
  }

  function draw() {
    const one = chosen(), every = rows(one), {n} = one;
    query = Math.min(query, n - 1);
    for (const [name, node] of Object.entries(inputs)) {
      const used = ["pattern", "n", "globals"].includes(name) || name === "apart" && one.globals > 1 ||
        (USES[one.pattern] ?? []).includes(name);
      node.closest("label").hidden = !used;
      if (name !== "pattern") node.previousElementSibling.querySelector("output").value = one[name];
    }
    const pairs = every.reduce((sum, row) => sum + row.length, 0), row = every[query];
    mask.setAttribute("viewBox", `0 0 ${n} ${n}`);
    mask.setAttribute("aria-label", `${written(one)} on ${n} positions: each row shows what one query sees. Arrow keys move the query.`);
    find(".cells").setAttribute("d", every.map(path).join(""));
    find(".seen").setAttribute("d", path(row, query));
    find(".line").setAttribute("d", `M0 ${query}h${n}v1H0z`);
    const list = spans(row).map(([first, last]) => (first === last ? first : `${first}–${last}`));
    find(".told").textContent = `${pairs} pairs, ${(100 * pairs / n ** 2).toFixed(1)}% of full attention. Query ${query} sees ` +
      `${row.length} key${row.length === 1 ? "" : "s"}: ${list.slice(0, 12).join(", ")}${list.length > 12 ? ", …" : ""}.`;
    find(".reach tbody").replaceChildren(...reach(every, query, 6).map((size, k) => {
      const line = document.createElement("tr");
      line.innerHTML = `<th scope="row">${k + 1}</th><td>${size}</td><td><i style="width: ${100 * size / n}%"></i></td>`;
      return line;
    }));
    find(".written").textContent = written(one);
    const asked = Object.fromEntries(Object.entries(inputs).map(([name, node]) => [name, node.value]));
    find(".here").href = "#" + new URLSearchParams({...asked, query});
  }

  function restore() {
    const asked = new URLSearchParams(location.hash.slice(1)), wanted = asked.has("pattern") ? Object.fromEntries(asked) : {};
    const known = {...inputs, query: {value: start.query, min: 0, max: start.ranges.n[1] - 1}}, trouble = [];
    for (const [name, value] of Object.entries(wanted)) {
      const node = Object.hasOwn(known, name) && known[name], number = /^\d+$/.test(value) ? Number(value) : NaN;
      if (!node) trouble.push(`Unknown name “${name}” in the address.`);
      else if (name === "pattern" ? !Object.hasOwn(start.patterns, value) : !(number >= node.min && number <= node.max)) {
        trouble.push(name === "pattern" ? `Unknown pattern “${value}”; another one is shown.`
          : `${start.names[name] ?? name} is “${value}”; it must be ${node.min} to ${node.max}. ${start[name]} is used.`);
        delete wanted[name];
      }
    }
    for (const [name, node] of Object.entries(inputs)) node.value = wanted[name] ?? start[name];
    query = Number(wanted.query ?? start.query);
    draw();
    if (trouble.length) find(".told").prepend(`${trouble.join(" ")} `);
  }

  function move(to) {
    query = Math.min(chosen().n - 1, Math.max(0, to));
    draw();
  }
  mask.tabIndex = 0;
  mask.addEventListener("pointermove", (event) => {
    const box = mask.getBoundingClientRect();
    move(Math.floor(chosen().n * (event.clientY - box.top) / box.height));
  });
  mask.addEventListener("keydown", (event) => {
    const step = {ArrowUp: -1, ArrowDown: 1, ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!step) return;
    event.preventDefault();
    move(query + step);
  });
  controls.addEventListener("input", draw);
  addEventListener("hashchange", () => new URLSearchParams(location.hash.slice(1)).has("pattern") && restore());
  root.classList.add("ready");
  root.querySelectorAll("[hidden]").forEach((one) => one.hidden = false);
  restore();
})();
