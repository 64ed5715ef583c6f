"""The drawing of the rooms shows what there is."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("rooms", ROOT / "book/rooms.py")
rooms = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(rooms)


def test_every_room_stands_in_the_drawing_once():
    here = sorted(path.stem for path in (ROOT / "src/repro").iterdir()
                  if path.name != "__init__.py" and (path.suffix == ".py" or (path / "__init__.py").exists()))
    assert sorted(re.findall("<b>(.*?)</b>", rooms.drawing())) == here


def test_a_room_tells_what_it_is_for_and_what_is_in_it():
    study = rooms.box("study")
    assert "The study&#x27;s engine" in study and "published" in study
    assert "artifacts · budget · cache · claims · experiment" in study
    assert "yoshida2020" in rooms.box("papers") and "inside" not in rooms.box("errors")


def test_the_page_has_its_place():
    page = (ROOT / "book/design.md").read_text()
    assert rooms.filled(page).count('<div class="floor">') == len(rooms.layers()) == page.count(rooms.PLACE) * 11
