"""The name of a cache in old and new versions of transformers."""

import pytest

from repro import hf_compat


@pytest.mark.parametrize(("version", "name"), [("5.5.0", "past_key_values"), ("5.23.1", "past_key_values"),
                                               ("5.24.0", "cache"), ("5.24rc1", "cache"), ("6.0.0.dev0", "cache")])
def test_the_name(version, name, monkeypatch):
    monkeypatch.setattr(hf_compat, "version", lambda package: version)
    monkeypatch.setattr(hf_compat, "cache_name", hf_compat.cache_name.__wrapped__)
    assert hf_compat.cache_argument(7) == {name: 7}


@pytest.mark.parametrize(("named", "found"), [({"cache": 7}, 7), ({"past_key_values": 7}, 7), ({"use_cache": 7}, None),
                                              ({"cache": None, "past_key_values": 7}, 7)])
def test_found_under_either_name(named, found):
    assert hf_compat.cache_in(named) == found
