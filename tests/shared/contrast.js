// The visible texts of a page whose colour is too near to what lies behind them: [{text, where, ratio, needed}].
// Contrast as WCAG 2.2 defines it: 4.5 to 1, and 3 to 1 for large text (24 pixels, or 18.66 and bold).
(() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const known = new Map();
  const rgba = (colour, filter = "none") => {  // any CSS colour as [r, g, b, alpha], 0 to 255 and 0 to 1
    if (!known.has(colour + filter)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.filter = filter;
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      known.set(colour + filter, [r, g, b, a / 255]);
    }
    return known.get(colour + filter);
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((one, k) => a * one + (1 - a) * below[k]);
  const luminance = (colour) => colour.map((one) => one / 255)
    .map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
    .reduce((sum, one, k) => sum + one * [0.2126, 0.7152, 0.0722][k], 0);
  const behind = (element) => {  // the opaque colour that lies behind an element's text
    const layers = [];
    for (let one = element; one; one = one.parentElement) {
      layers.push(rgba(getComputedStyle(one).backgroundColor));
      if (layers.at(-1)[3] === 1) break;
    }
    return layers.reduceRight((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const drawn = (text, below) => {  // what a drawing has painted behind the middle of one of its texts
    const box = text.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;
    for (const shape of text.closest("svg").querySelectorAll("path, rect, circle, use")) {
      if (!(shape.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING)) break;
      const edge = shape.getBoundingClientRect(), fill = getComputedStyle(shape).fill;
      if (fill === "none" || x < edge.left || x > edge.right || y < edge.top || y > edge.bottom) continue;
      const point = new DOMPoint(x, y).matrixTransform(shape.getScreenCTM().inverse());
      if (!shape.isPointInFill || shape.isPointInFill(point)) below = over(rgba(fill), below);
    }
    return below;
  };
  const opacity = (element) => {
    let value = 1;
    for (let one = element; one; one = one.parentElement) value *= +getComputedStyle(one).opacity;
    return value;
  };
  const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), element = walker.currentNode.parentElement;
    if (!text || ["SCRIPT", "STYLE", "NOSCRIPT", "OPTION"].includes(element.tagName.toUpperCase())) continue;
    if (!element.checkVisibility({visibilityProperty: true, opacityProperty: true})) continue;
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    const box = range.getBoundingClientRect();
    if (box.width < 2 || box.height < 2) continue;  // for readers of screens only
    const style = getComputedStyle(element), svg = element.namespaceURI.endsWith("svg");
    const below = svg ? drawn(element, behind(element)) : behind(element);
    const [r, g, b, a] = rgba(svg ? style.fill : style.color);
    const filter = svg ? getComputedStyle(element.closest("svg")).filter : "none";  // of a drawing on an opaque ground
    const pair = [over([r, g, b, a * opacity(element)], below), below]
      .map((one) => luminance(rgba(`rgb(${one.map(Math.round)})`, filter).slice(0, 3))).sort((x, y) => y - x);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05), size = parseFloat(style.fontSize);
    const needed = size >= 24 || (size >= 18.66 && +style.fontWeight >= 700) ? 3 : 4.5;
    if (ratio < needed) {
      const place = element.closest("[class]");
      found.push({text: text.slice(0, 40), where: `${element.tagName}.${place?.getAttribute("class")}`,
                  ratio: Math.round(100 * ratio) / 100, needed});
    }
  }
  return found;
})()
