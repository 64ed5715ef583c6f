"""Books of a few token ids, read in every way that the library can."""

import numpy as np
import pytest

from repro.data import Tokens

BOS = 0


@pytest.fixture
def tokens():
    """(joined, books) -> the books as `Tokens`: one stream after a single bos, or every book after its own. Each token
    is two words of five bytes."""
    def made(joined, books):
        stream, starts = [BOS], []
        for k, book in enumerate(books):
            if k and not joined:
                stream.append(BOS)
            starts.append(len(stream))
            stream.extend(book)
        lengths = np.array([len(book) for book in books])
        return Tokens(np.array(stream, np.int32), np.array(starts), lengths * 2, lengths * 10, BOS, joined)
    return made
