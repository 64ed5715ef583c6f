// repro.recompute.Plan in a browser, on a GPU: how long a text fits on a card, worked out anew at every move.
(() => {
  const root = document.querySelector(".planner:not(.ready)");
  const data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
  const find = (selector) => root.querySelector(selector);

  function peak(one, recompute, windows) { // bytes: Plan.peak
    const [depth, d, parameters] = data.models[one.model], single = one.precision === "no";
    const tokens = one.batch * one.window, weights = 4 * parameters, embedding = 4 * data.vocabulary * d;
    const block = (single ? 4 * 29 : 8 + 2 * 27 + 24) * tokens * d; // Plan.block, its GELU written out
    const state = 4 * tokens * d, logits = 4 * tokens * data.vocabulary;
    const scoring = Math.max(3 * logits, 2 * embedding), through = (single ? 40 : 20) * tokens * d;
    let inside, kept, work, copies;
    if (recompute.includes("layer")) {
      inside = kept = (depth + 2) * state;
      work = Math.max(scoring, block + through);
      copies = single ? 0 : Math.floor(embedding / 2);
    } else {
      inside = depth * block + 2 * state;
      kept = inside + logits;
      work = Math.max(scoring, through);
      copies = single ? 0 : Math.floor(weights / 2);
    }
    if (recompute.includes("window")) kept = 4 * one.batch * d; // z
    const last = (windows - 1) * kept + inside + work + copies;
    const others = weights + Math.max(windows > 1 ? (windows - 2) * kept + inside + work + copies : 0, 2 * embedding);
    return 3 * weights + Math.max(last, others);
  }

  function longest(one, recompute) { // tokens: Plan.most_windows times a window
    const text = 8 * one.batch * one.window;
    let fits = 0, over = 1e9;
    while (over - fits > 1) {
      const middle = Math.floor((fits + over) / 2);
      if (peak(one, recompute, middle) + middle * text <= data.usable * one.card) fits = middle; else over = middle;
    }
    return fits * one.window;
  }
  root.longest = longest; // for those who want to check

  const inputs = {};
  function control(name, title, node) {
    const label = document.createElement("label"), span = document.createElement("span");
    span.append(title, document.createElement("output"));
    label.append(span, node);
    node.name = name;
    find(".controls").append(label);
    inputs[name] = node;
    node.addEventListener("input", draw);
  }
  function choice(name, title, known) {
    const select = document.createElement("select");
    for (const [value, told] of known) select.add(new Option(told, value, false, value === data.start[name]));
    control(name, title, select);
  }
  function slider(name, title, low, high, value) {
    const input = Object.assign(document.createElement("input"), {type: "range", min: low, max: high});
    input.value = value;
    control(name, title, input);
  }

  const number = (value) => Math.round(value).toLocaleString("en-US");
  const width = (tokens) => tokens ? Math.min(100, Math.max(0, 100 * (Math.log10(tokens) - 1) / 6)) : 0;
  function draw() {
    const one = {model: inputs.model.value, precision: inputs.precision.value, card: data.cards[inputs.card.value],
      window: +inputs.window.value, batch: +inputs.batch.value};
    for (const [name, told] of [["card", `${one.card} GB`], ["window", one.window], ["batch", one.batch]])
      inputs[name].closest("label").querySelector("output").value = told;
    for (const row of root.querySelectorAll("tbody tr")) {
      const kind = row.dataset.kind, tokens = longest(one, kind);
      row.cells[2].textContent = number(tokens);
      row.querySelector("i").style.width = `${width(tokens)}%`;
      row.cells[4].textContent = `${Math.round(100 * peak(one, kind, 1) / (data.usable * one.card))}%`;
    }
    find(".told").textContent = `${one.model}, ${data.precisions[one.precision]}, ${one.card} GB, windows of ${
      one.window} tokens, ${one.batch} at once.`;
  }

  choice("model", "model", Object.keys(data.models).map((name) => [name, name]));
  choice("precision", "precision", Object.entries(data.precisions));
  const nearest = data.cards.findIndex((card) => card >= data.start.card);
  slider("card", "card", 0, data.cards.length - 1, nearest < 0 ? data.cards.length - 1 : nearest);
  slider("window", "window, tokens", ...data.windows, data.start.window);
  slider("batch", "texts at once", ...data.batches, data.start.batch);
  root.classList.add("ready");
  find(".live").hidden = false;
  draw();
})();
