// The scoreboard's filters: hide rows that do not match, and keep the chosen filters in the address.
(() => {
  const board = document.querySelector(".board:not(.ready)");
  const form = board.querySelector("form"), said = board.querySelector("output");
  const rows = [...board.querySelectorAll("[data-verdict]")];
  const parts = [...board.querySelectorAll(".paper, .gallery")].map((part) => [
    part, [...part.querySelectorAll("[data-verdict]")]]);
  const papers = board.querySelectorAll(".paper > details"); // on a phone they are folded until one is asked for
  const claims = rows.filter((row) => row.matches(".claim"));

  function filter(trouble = "") {
    const asked = [...new FormData(form)].filter(([, value]) => value);
    const left = new Set(rows.filter((row) =>
      asked.every(([name, value]) => row.dataset[name].split("|").includes(value))));
    for (const row of rows) if (row.hidden === left.has(row)) row.hidden = !left.has(row);
    for (const [part, own] of parts) part.hidden = !own.some((row) => left.has(row));
    if (asked.length) for (const paper of papers) paper.open = true;
    const shown = claims.filter((row) => left.has(row)).length;
    said.value = `${trouble}${shown} of ${claims.length} claims, ` +
      `${left.size - shown} of ${rows.length - claims.length} tables and figures.`;
    return asked;
  }

  function decoded(text) { // unchanged if it is not a valid encoding
    try { return decodeURIComponent(text); } catch { return text; }
  }

  function restore() { // apply the address: #paper=…&verdict=…&scale=…, or #ID for one claim
    const address = location.hash.slice(1), wanted = address.includes("=") ? address : decoded(address);
    const trouble = [];
    if (wanted.includes("=")) {
      form.querySelectorAll("select").forEach((select) => select.value = "");
      for (const [name, value] of new URLSearchParams(wanted)) {
        const select = form.elements[name];
        if (!select?.options) trouble.push(`Unknown filter “${name}”. `);
        else if ([...select.options].some((one) => one.value === value)) select.value = value;
        else trouble.push(`Unknown ${name} “${value}”. `);
      }
    } else if (wanted && !document.getElementById(wanted)) {
      trouble.push(`Nothing on this page is called “${wanted}” any more. `);
    }
    filter(trouble.join(""));
    const claim = claims.find((row) => row.id === wanted);
    if (!claim) return;
    claim.open = claim.closest(".paper > details").open = true;
    claim.scrollIntoView({block: "start"});
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", () =>
    history.replaceState(null, "", `#${new URLSearchParams(filter())}`));
  form.addEventListener("reset", () => setTimeout(() => {
    filter();
    history.replaceState(null, "", location.pathname + location.search);
  }));
  addEventListener("hashchange", restore);
  if (matchMedia("(max-width: 600px)").matches) for (const paper of papers) paper.open = false;
  board.classList.add("ready");
  form.hidden = false;
  restore();
})();
