"""Letters in a drawing: inside it, apart from one another, and large enough to read."""


def check_letters(figure, least: float = 9) -> None:
    """Assert it of all texts of the first axes; least: the smallest size in points."""
    figure.canvas.draw()
    texts = [text for text in figure.axes[0].texts if text.get_text()]
    boxes, inside = [text.get_window_extent() for text in texts], figure.bbox
    assert boxes and all(inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1
                         for box in boxes)
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1:])
    assert min(text.get_fontsize() for text in texts) >= least
