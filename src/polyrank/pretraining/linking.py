"""From the titles that passages link to to the numbers of articles.

A title is known by 64 bits of a hash: among 10 million titles, two share one with a probability of
3 in a million. While links are resolved, 16 bytes an article and a block of links are in memory.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyrank.pretraining.columns import Writer, mapped

PASSAGES_A_BLOCK = 1 << 16


def title_hash(title: str) -> int:
    """64 bits of a title; white space and underscores are alike."""
    plain = " ".join(title.replace("_", " ").split()).encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(plain, digest_size=8).digest(), "little")


def column(folder: Path, name: str, dtype: str) -> NDArray[np.generic]:
    """A column, mapped."""
    return np.frombuffer(mapped(folder / name), dtype)


def resolve(raw: Path, folder: Path) -> int:
    """Write `links` and `passage.links` of a side; returns the number of links kept.

    `raw` holds `titles.u64` (A), `targets.u64` and `ends.u64` (P): the hashes of titles, those of
    linked titles, and where those of each passage end. Of two articles with one title, the first
    is meant.
    """
    titles, first = np.unique(column(raw, "titles.u64", "<u8"), return_index=True)
    has_lead = np.diff(column(folder, "article.leads.u64", "<u8").astype(np.int64)) > 0
    targets, ends = column(raw, "targets.u64", "<u8"), column(raw, "ends.u64", "<u8")
    owners = column(folder, "passage.article.u32", "<u4")
    kept = 0
    with Writer(folder) as writer:
        writer.declare("links.u32", "passage.links.u64")
        writer.append("passage.links.u64", [0])
        for begin in range(0, len(ends), PASSAGES_A_BLOCK):
            block = slice(begin, begin + PASSAGES_A_BLOCK)
            starts = np.concatenate([ends[begin - 1 : begin] if begin else [0], ends[block]])
            starts = starts.astype(np.int64)
            passages = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
            wanted = targets[starts[0] : starts[-1]]
            places = np.minimum(np.searchsorted(titles, wanted), max(0, len(titles) - 1))
            known = titles[places] == wanted
            passages, articles = passages[known], first[places[known]]
            good = (articles != owners[block][passages]) & has_lead[articles]
            pairs = np.unique(passages[good] << 32 | articles[good])
            counts = np.bincount(pairs >> 32, minlength=len(starts) - 1)
            writer.append("links.u32", (pairs & 0xFFFFFFFF).tolist())
            writer.append("passage.links.u64", (kept + np.cumsum(counts)).tolist())
            kept += len(pairs)
    return kept
