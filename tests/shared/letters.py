"""Letters in a drawing: inside it, apart from one another, and large enough to read."""

import re

SIZE = re.compile(r"font(?:-size)?: (?:[a-z0-9]+ )*?([0-9.]+)px")


def smallest(figure) -> float:
    """The size of the smallest letters of a figure's SVG, superscripts included, in points; the page is 504 wide, and
    9 of these are 11 pixels on a phone. Fails for a figure without letters."""
    return min(float(size) for size in SIZE.findall(figure.svg()))


def unreadable(figure, least: float = 9) -> list[str]:
    """The texts of the first axes that leave the drawing, touch another, or are smaller than `least` points; a drawing
    without a text is one fault."""
    figure.canvas.draw()
    texts = [text for text in figure.axes[0].texts if text.get_text()]
    boxes, inside = [text.get_window_extent() for text in texts], figure.bbox
    faults = [] if texts else ["no text"]
    for k, (text, box) in enumerate(zip(texts, boxes, strict=True)):
        if not (inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1):
            faults.append(f"{text.get_text()!r} leaves the drawing")
        faults += [f"{text.get_text()!r} touches {texts[other].get_text()!r}"
                   for other in range(k + 1, len(boxes)) if box.overlaps(boxes[other])]
        if text.get_fontsize() < least:
            faults.append(f"{text.get_text()!r} has {text.get_fontsize():g} points")
    return faults
