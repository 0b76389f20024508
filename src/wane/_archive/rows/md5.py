"""MD5 digests of a column of texts, thousands of them at a time.

Calling Python's MD5 for each text takes longer than the digest of a short text. So the steps of the algorithm
(RFC 1321) are operations on arrays here, each on one number of every text.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BYTES = 16
"""The length of a digest."""
_BLOCK, _LENGTH = 64, 8
"""The bytes of a block, and those at the end of the last one that have the length of the text."""
_MOST_BLOCKS = 8
"""Texts with more blocks take as long by themselves as in an array."""
_FEWEST = 1_024
"""The number of texts from which on the operations on arrays take less time than calls for each."""
_AT_ONCE = 16_384
"""The most texts of an array: larger ones leave the cache of a processor."""
_START = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476)
_TURNS = ((7, 12, 17, 22), (5, 9, 14, 20), (4, 11, 16, 23), (6, 10, 15, 21))
_WORDS = ((1, 0), (5, 1), (3, 5), (7, 0))
"""Of each round, how the word of a step follows from the number of the step."""
_STEPS = [
    (
        number // 16,
        (number * _WORDS[number // 16][0] + _WORDS[number // 16][1]) % 16,
        np.uint32(int(abs(math.sin(number + 1)) * 2**32)),
        np.uint32(_TURNS[number // 16][number % 4]),
        np.uint32(32 - _TURNS[number // 16][number % 4]),
    )
    for number in range(64)
]


def md5(texts: Any) -> Any:
    """Compute the digest of every text of an Arrow array without NULLs, as a row of bytes each."""
    found = np.empty((len(texts), BYTES), np.uint8)
    blocks = np.minimum((_lengths(texts) + _LENGTH) // _BLOCK, _MOST_BLOCKS) + 1
    for count in np.unique(blocks):
        rows = np.flatnonzero(blocks == count)
        some = texts if len(rows) == len(texts) else texts.take(pa.array(rows))
        each = count > _MOST_BLOCKS or len(rows) < _FEWEST
        found[rows] = _one_by_one(some) if each else _together(some, int(count))
    return found


def _lengths(texts: Any) -> Any:
    return pc.binary_length(texts).to_numpy()


def _one_by_one(texts: Any) -> Any:
    digests = [hashlib.md5(one, usedforsecurity=False).digest() for one in texts.cast(pa.binary()).to_pylist()]
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, BYTES)


def _together(texts: Any, blocks: int) -> Any:
    """Compute the digests of texts with the same number of blocks."""
    parts = [_padded(texts.slice(start, _AT_ONCE), blocks) for start in range(0, len(texts), _AT_ONCE)]
    return np.concatenate([_digests(one) for one in parts])


def _padded(texts: Any, blocks: int) -> Any:
    """Return the words of texts that are padded to blocks: an array for each word, with one number for each text."""
    width = blocks * _BLOCK
    filled = pc.ascii_rpad(texts, width, "\0")
    lengths = _lengths(texts)
    data = np.frombuffer(filled.buffers()[2], np.uint8, len(texts) * width).reshape(-1, width).copy()
    data[np.arange(len(texts)), lengths] = 0x80
    words = data.view("<u4")
    words[:, -2] = lengths * 8
    return np.array(words.T, np.uint32, order="C")


def _digests(words: Any) -> Any:
    state = [np.full(words.shape[1], one, np.uint32) for one in _START]
    for first in range(0, len(words), 16):
        for one, other in zip(state, _mixed(state, words[first : first + 16]), strict=True):
            one += other
    return np.stack(state, axis=1).astype("<u4").view(np.uint8)


def _mixed(state: Any, words: Any) -> Any:
    """Take the steps of one block, in arrays that are used over and over."""
    a, b, c, d = (one.copy() for one in state)
    some, more = np.empty_like(a), np.empty_like(a)
    for step, word, added, left, right in _STEPS:
        if step == 0:
            np.bitwise_xor(c, d, out=some)
            np.bitwise_and(some, b, out=some)
            np.bitwise_xor(some, d, out=some)
        elif step == 1:
            np.bitwise_xor(b, c, out=some)
            np.bitwise_and(some, d, out=some)
            np.bitwise_xor(some, c, out=some)
        elif step == 2:
            np.bitwise_xor(b, c, out=some)
            np.bitwise_xor(some, d, out=some)
        else:
            np.invert(d, out=some)
            np.bitwise_or(some, b, out=some)
            np.bitwise_xor(some, c, out=some)
        for one in (some, words[word], added):
            np.add(a, one, out=a)
        np.left_shift(a, left, out=some)
        np.right_shift(a, right, out=more)
        np.bitwise_or(some, more, out=some)
        np.add(some, b, out=a)
        a, b, c, d = d, a, b, c
    return a, b, c, d
