"""Images and sound as bytes, and the embedded ones, whose fewest bits are known."""

import math
from collections import Counter

import numpy as np
import pytest

from repro.data import corpus
from repro.data.examples import Audio, BadField, Image
from repro.data.synthetic_images import IMAGES, SyntheticImages
from repro.data.synthetic_sound import SOUND, SyntheticSound, _mulaw
from repro.errors import ReproError
from repro.papers.sparse2019 import data


def image(height, width=None, channels=3):
    rng = np.random.default_rng(0)
    return Image("one", rng.integers(0, 256, (height, width or height, channels), dtype=np.uint8), 0)


def test_an_image_is_its_bytes_behind_a_start():
    one = image(4)
    assert data.as_tokens(one, 4).tolist() == [256, *one.pixels.tobytes()]


def test_a_larger_image_is_shrunk_by_means_of_patches():
    one = image(4)
    found = data.as_tokens(one, 2)[1:].reshape(2, 2, 3)
    assert found[0, 1, 2] == round(sum(int(one.pixels[r, c, 2]) for r in (0, 1) for c in (2, 3)) / 4)
    assert found.shape == (2, 2, 3)


@pytest.mark.parametrize(("height", "width", "told"), [(4, 6, "is 4 x 6 x 3"), (6, 6, "side that is a multiple of 4")])
def test_images_of_another_shape_are_refused(height, width, told):
    with pytest.raises(ReproError, match=told):
        data.as_tokens(image(height, width), 4)


def recordings(monkeypatch, *found):
    monkeypatch.setattr(data, "_rows", lambda name, split: iter(found))


def test_recordings_follow_one_another(monkeypatch):
    recordings(monkeypatch, *(Audio(str(k), "", np.array([k, 200], np.uint8), 12_000) for k in (3, 4)))
    assert data.sound("x", "train").tolist() == [3, 200, 4, 200]


def test_sound_at_another_rate_or_not_mulaw_is_refused(monkeypatch):
    recordings(monkeypatch, Audio("a", "", np.array([3], np.uint8), 44_100))
    with pytest.raises(ReproError, match="recording a of x has 44,100 samples a second; .* 12,000. Resample it"):
        data.sound("x", "train")
    quiet = np.tile(np.array([126, 127, 128, 130], np.uint8), 3_000)
    recordings(monkeypatch, Audio("b", "", quiet, 12_000))
    with pytest.raises(ReproError, match="recording b of x keeps within 20 codes of silence .* Encode it that way"):
        data.sound("x", "train")
    heard = next(corpus("synthetic-sound").examples("test"))
    recordings(monkeypatch, heard)
    assert len(data.sound("x", "train")) == len(heard.codes)
    loud = 0.2 * np.sin(np.arange(24_000) / 9)  # as loud as a recording whose loudest moment is five times its mean
    recordings(monkeypatch, Audio("d", "", np.round(loud * 127.5 + 127.5).astype(np.uint8), 12_000))
    with pytest.raises(ReproError, match="recording d of x keeps within 20 codes"):
        data.sound("x", "train")
    recordings(monkeypatch)
    with pytest.raises(ReproError, match="x has no recordings in its split train; add some"):
        data.sound("x", "train")
    with pytest.raises(BadField, match="not uint8"):
        Audio("c", "", np.zeros(4, np.int16), 12_000)


def test_validation_images_are_the_last_training_images():
    found = data._images("synthetic-images", 8)
    assert (found.train.shape, found.validation.shape, found.test.shape) == ((900, 193), (100, 193), (60, 193))
    last = list(corpus("synthetic-images").examples("train"))[-1]
    assert found.validation[-1].tolist() == data.as_tokens(last, 8).tolist()


def test_rows_of_generated_images_repeat():
    quiet = SyntheticImages(side=6, noise=0)
    for k in range(6):
        one = quiet.example("train", k)
        period = one.label + 1
        assert (one.pixels[period:] == one.pixels[:-period]).all()
        assert period == 1 or (one.pixels[1] != one.pixels[0]).any()
    assert {quiet.example("train", k).label for k in range(6)} == {0, 1}


def test_fewest_bits_of_generated_images_are_the_entropy_of_their_pixels():
    assert SyntheticImages(side=8, colours=4, noise=0).best_bits() == pytest.approx(2 * 1.5 / 8 / 3)
    assert SyntheticImages(side=8, colours=4, noise=1).best_bits() == pytest.approx(2 / 3)
    counted = Counter()
    for k in range(150):
        one = IMAGES.example("train", k)
        period = one.label + 1
        for row in range(period, 8):
            counted.update((one.pixels[row] == one.pixels[row - period]).all(-1).tolist())
    same = counted[True] / counted.total()
    again = -same * math.log2(same) - (1 - same) * math.log2((1 - same) / 7)
    first = 1.5 / 8
    assert IMAGES.best_bits() == pytest.approx((first * 3 + (1 - first) * again) / 3, rel=0.03)


def test_notes_repeat_but_for_their_noise():
    quiet = SyntheticSound(notes=1, length=200, noise=0)
    codes = quiet.example("train", 0).codes
    periods = [p for p in range(24, 61) if (codes[p:] == codes[:-p]).all()]
    assert len(periods) >= 1 and quiet.best_bits() == 0
    loud = SyntheticSound(notes=1, length=4_000, noise=0.4).example("train", 0).codes.astype(int)
    moved = SyntheticSound(notes=1, length=4_000, noise=0).example("train", 0).codes.astype(int)
    assert len(moved) == len(loud) == 4_000
    assert SyntheticSound(noise=0.5).best_bits() == pytest.approx(1.5)


def test_codes_stand_for_the_waves_that_they_were_made_of():
    for x in (-1, -0.3, -0.01, 0.02, 0.5, 1):
        back = Audio("x", "", np.array([_mulaw(x)], np.uint8), 12_000).waveform()[0]
        assert back == pytest.approx(x, abs=0.03 * abs(x) + 0.001)
    assert 4 < np.abs(SOUND.example("test", 0).codes.astype(int) - 128).mean() < 120


@pytest.mark.parametrize("make", [lambda: SyntheticImages(side=2), lambda: SyntheticSound(periods=(60, 24)),
                                  lambda: SyntheticSound(noise=1.5)])
def test_numbers_out_of_range_are_refused(make):
    with pytest.raises(ReproError, match="allowed are"):
        make()


@pytest.mark.parametrize("name", ["synthetic-images", "synthetic-sound"])
def test_embedded_corpora_are_whole_and_the_same_every_time(name):
    one = corpus(name)
    assert all(row.ok for row in one.check()) and one.available()
    assert one.fingerprint() == corpus(name).fingerprint()
