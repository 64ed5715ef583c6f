// Excerpts of the search are of a page's prose and tables, not of the letters in its drawings.
addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return;
  const told = Search.htmlToText;
  Search.htmlToText = (page, anchor) => told(page.replace(/<svg[\s\S]*?<\/svg>/g, ""), anchor);
});
