"""A corpus folder: `corpus.json` and Parquet files, read as a stream of documents.

Memory is that of one row group, however large the corpus. Knows nothing of what it was made from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from polyrank.data.parquet import require_size, stores_once
from polyrank.errors import DataError
from polyrank.folder_files import require_own_files, sha256_of
from polyrank.pretraining.corpus.manifest import REMEDY, DroppedCount, Manifest, Part, read_manifest
from polyrank.pretraining.corpus.schema import Kind, from_batch, load_pyarrow
from polyrank.records import Document


class Corpus:
    """The documents of a folder, in the order of their source."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self.intact: set[str] = set()
        """The parts whose checksum has been compared."""

    @classmethod
    def open(cls, path: str | Path) -> Corpus:
        """Open a folder that `polyrank corpus` made.

        Raises UsageError if it is not a corpus, DataError if it is damaged or of a newer version.
        """
        path = Path(path)
        require_own_files(path, DataError)
        corpus = cls(path, read_manifest(path))
        for part in corpus.manifest.parts:
            corpus.require_size(part)
        return corpus

    @property
    def kind(self) -> Kind:
        """`articles` or `conversations`."""
        return self.manifest.kind

    @property
    def language(self) -> str:
        """The language's code, such as `en`."""
        return self.manifest.language

    @property
    def counts(self) -> Mapping[str, int]:
        """How many documents, sections, sentences, links or turns there are, by name."""
        return self.manifest.counts

    @property
    def dropped(self) -> Mapping[str, DroppedCount]:
        """What was dropped, by reason."""
        return self.manifest.dropped

    @property
    def fingerprint(self) -> str:
        """Identifies the content of the corpus."""
        return self.manifest.fingerprint

    def __len__(self) -> int:
        return sum(part.rows for part in self.manifest.parts)

    def __iter__(self) -> Iterator[Document]:
        """The documents. Raises DataError for a part that is damaged."""
        for batch in self.batches():
            yield from from_batch(batch)

    def batches(self) -> Iterator[Any]:
        """The documents as Arrow record batches (see `schema`), one or more a row group.

        Raises DataError for a part that is damaged: each is compared with its checksum when it is
        first read.
        """
        pa = load_pyarrow()
        for part in self.manifest.parts:
            self.require_intact(part)
            try:
                with pa.parquet.ParquetFile(self.path / part.file, pre_buffer=False) as file:
                    require_size(self.path / part.file, file.metadata)
                    if stores_once(file.metadata):
                        raise self.damaged(part, "polyrank did not write it")
                    for group in range(file.num_row_groups):
                        yield from file.read_row_group(group, use_threads=False).to_batches()
            except (pa.ArrowException, OSError) as error:
                raise self.damaged(part, f"it cannot be read, {error}") from error

    def verify(self) -> None:
        """Compare every part with its checksum. Raises DataError."""
        self.intact.clear()
        for part in self.manifest.parts:
            self.require_intact(part)

    def require_intact(self, part: Part) -> None:
        """Raise DataError if a part has changed since it was written; checked once per part."""
        if part.file in self.intact:
            return
        self.require_size(part)
        try:
            found = sha256_of(self.path / part.file)
        except OSError as error:
            raise self.damaged(part, f"it cannot be read, {error.strerror}") from error
        if found != part.sha256:
            raise self.damaged(part, "its checksum differs")
        self.intact.add(part.file)

    def require_size(self, part: Part) -> None:
        """Raise DataError if a part is missing or has another length."""
        try:
            size = (self.path / part.file).stat().st_size
        except FileNotFoundError:
            raise self.damaged(part, "it is missing") from None
        except (OSError, ValueError) as error:  # a name with NUL, or half an emoji
            reason = getattr(error, "strerror", None) or error
            raise self.damaged(part, f"it cannot be read, {reason}") from error
        if size != part.bytes:
            raise self.damaged(part, f"it has {size:,} bytes, not {part.bytes:,}")

    def damaged(self, part: Part, how: str) -> DataError:
        """The error for a part that has changed since it was written."""
        problem = f"This part of the corpus is damaged: {how}."
        return DataError(problem, REMEDY, path=self.path / part.file)
