"""Documents as Arrow record batches, and back. Knows the columns; knows nothing of files.

articles        id, title, sections: list<heading, level, paragraphs: list<text,
                sentences: list<start, stop>, links: list<start, stop, target>>>
conversations   id, turns: list<speaker, text>
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, Literal

from polyrank.records import (
    Article,
    Conversation,
    Document,
    Link,
    Paragraph,
    Section,
    Turn,
)

Kind = Literal["articles", "conversations"]
COUNTED: dict[Kind, tuple[str, ...]] = {
    "articles": (
        "articles",
        "redirects",
        "sections",
        "paragraphs",
        "sentences",
        "links",
        "redirected_links",
    ),
    "conversations": ("conversations", "turns"),
}


def load_pyarrow() -> Any:
    """The package pyarrow, loaded when it is first needed."""
    import pyarrow
    import pyarrow.parquet

    return pyarrow


def schema_of(kind: Kind) -> Any:
    """The Arrow schema of a kind of documents."""
    pa = load_pyarrow()
    text, number = pa.string(), pa.int32()

    def list_of(*fields: tuple[str, Any]) -> Any:
        return pa.list_(pa.field("item", pa.struct(fields)))

    if kind == "conversations":
        return pa.schema([("id", text), ("turns", list_of(("speaker", text), ("text", text)))])
    paragraphs = list_of(
        ("text", text),
        ("sentences", list_of(("start", number), ("stop", number))),
        ("links", list_of(("start", number), ("stop", number), ("target", text))),
    )
    sections = list_of(("heading", text), ("level", number), ("paragraphs", paragraphs))
    return pa.schema([("id", text), ("title", text), ("sections", sections)])


def kind_of(document: Document) -> Kind:
    """What a document is."""
    return "articles" if isinstance(document, Article) else "conversations"


def to_batch(documents: Sequence[Document], kind: Kind) -> Any:
    """Documents, all of one kind, as a record batch."""
    pa = load_pyarrow()
    schema = schema_of(kind)
    if kind == "conversations":
        conversations = [item for item in documents if isinstance(item, Conversation)]
        turns = nested(schema.field("turns").type, [item.turns for item in conversations])
        return pa.record_batch(
            [pa.array([c.id for c in conversations], pa.string()), turns], schema
        )
    articles = [item for item in documents if isinstance(item, Article)]
    sections = nested(schema.field("sections").type, [item.sections for item in articles])
    ids = pa.array([article.id for article in articles], pa.string())
    titles = pa.array([article.title for article in articles], pa.string())
    return pa.record_batch([ids, titles, sections], schema)


def nested(kind: Any, groups: Sequence[Sequence[Any]]) -> Any:
    """Groups of named tuples, whose fields are those of the list type `kind`, as a list array."""
    pa = load_pyarrow()
    offsets = [0]
    for group in groups:
        offsets.append(offsets[-1] + len(group))
    rows = list(chain.from_iterable(groups))
    fields = list(kind.value_type)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
    arrays = [
        nested(field.type, column) if pa.types.is_list(field.type) else flat(column, field.type)
        for field, column in zip(fields, columns, strict=True)
    ]
    values = pa.StructArray.from_arrays(arrays, fields=fields)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=kind)


def flat(column: Sequence[Any], kind: Any) -> Any:
    """Plain values as an array."""
    return load_pyarrow().array(column, kind)


def from_batch(batch: Any) -> Iterator[Document]:
    """The documents of a record batch."""
    ids = batch.column("id").to_pylist()
    if "turns" in batch.schema.names:
        conversations = zip(ids, groups_of(batch.column("turns"), turns_of), strict=True)
        yield from (Conversation(name, turns) for name, turns in conversations)
        return
    titles = batch.column("title").to_pylist()
    sections = groups_of(batch.column("sections"), sections_of)
    for name, title, parts in zip(ids, titles, sections, strict=True):
        yield Article(name, title, parts)


def groups_of(column: Any, rows_of: Any) -> Iterator[tuple[Any, ...]]:
    """The rows of each list of a list array, made by `rows_of` from all of them at once."""
    offsets = column.offsets.to_pylist()
    rows = rows_of(column.values.slice(offsets[0], offsets[-1] - offsets[0]))
    for start, stop in pairwise(offsets):
        yield tuple(rows[start - offsets[0] : stop - offsets[0]])


def turns_of(values: Any) -> list[Turn]:
    """Turns of a struct array."""
    speakers, texts = (column.to_pylist() for column in values.flatten())
    return list(map(Turn, speakers, texts))


def sections_of(values: Any) -> list[Section]:
    """Sections of a struct array."""
    headings, levels, paragraphs = values.flatten()
    groups = groups_of(paragraphs, paragraphs_of)
    return list(map(Section, headings.to_pylist(), levels.to_pylist(), groups))


def paragraphs_of(values: Any) -> list[Paragraph]:
    """Paragraphs of a struct array."""
    texts, sentences, links = values.flatten()
    spans, found = groups_of(sentences, spans_of), groups_of(links, links_of)
    return list(map(Paragraph, texts.to_pylist(), spans, found))


def spans_of(values: Any) -> list[tuple[int, int]]:
    """Sentences of a struct array."""
    starts, stops = (column.to_pylist() for column in values.flatten())
    return list(zip(starts, stops, strict=True))


def links_of(values: Any) -> list[Link]:
    """Links of a struct array."""
    return list(map(Link, *(column.to_pylist() for column in values.flatten())))


def count(documents: Sequence[Document]) -> dict[str, int]:
    """How many there are of what `COUNTED` names."""
    if not documents:
        return {}
    if isinstance(documents[0], Conversation):
        conversations = [item for item in documents if isinstance(item, Conversation)]
        turns = sum(len(item.turns) for item in conversations)
        return {"conversations": len(conversations), "turns": turns}
    sections = [s for item in documents if isinstance(item, Article) for s in item.sections]
    paragraphs = [paragraph for section in sections for paragraph in section.paragraphs]
    return {
        "articles": len(documents),
        "sections": len(sections),
        "paragraphs": len(paragraphs),
        "sentences": sum(len(paragraph.sentences) for paragraph in paragraphs),
        "links": sum(len(paragraph.links) for paragraph in paragraphs),
    }
