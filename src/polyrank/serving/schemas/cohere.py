"""The bodies of Cohere's and Jina's calls: rerank and embed.

One answer serves the clients of both: Cohere's read `results`, `id` and `meta`, Jina's and vLLM's
read `model` and `usage`, too.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from annotated_types import MinLen
from pydantic import Field

from polyrank.serving.schemas.base import (
    Body,
    Count,
    EndAtFirst,
    ModelName,
    Text,
    Texts,
    Usage,
    example,
)

Documents = Annotated[list[str | dict[str, Any]], EndAtFirst(), MinLen(1)]

EmbeddingType = Literal["float", "base64", "binary", "ubinary"]
"""The forms of embeddings that are served."""


class RerankRequest(Body):
    """A query and the documents to order by their relevance."""

    model_config = example(
        model="my-model",
        query="How do I open a file?",
        documents=["Use open().", "Use sorted()."],
        top_n=1,
        return_documents=True,
    )

    model: ModelName = None
    query: Text | Texts = Field(
        description="A text, or the turns of a dialogue, oldest first. Turns are an addition to "
        "Cohere's and Jina's fields."
    )
    documents: Documents = Field(
        description='Texts, or objects with the field "text" or those of `rank_fields`.'
    )
    top_n: Count | None = Field(
        None, description="Give only the best so many documents; by default all."
    )
    rank_fields: Texts | None = Field(
        None,
        description="The fields of the documents that are read, joined in this order by spaces. By "
        'default "text".',
    )
    return_documents: bool | None = Field(
        None, description="Whether each result has its document. By default not."
    )
    max_tokens_per_doc: Count | None = Field(
        None,
        description="Cut documents after so many tokens. They are cut to the model's own length in "
        "any case.",
    )
    max_chunks_per_doc: Count | None = Field(
        None, description="Accepted and ignored: a document is read as one text."
    )
    raw_scores: bool | None = Field(
        None,
        description="Give the model's own scores instead of numbers from 0 to 1. An addition to "
        "Cohere's fields.",
    )


class NamedRerankRequest(RerankRequest):
    """A query and the documents to order by their relevance; the model must be named."""

    model: str = Field(description="The name of a served model, from `/v1/models`.")


class RankedDocument(Body):
    """A document as it was sent; a text is in `text`."""

    text: str


class RankedResult(Body):
    """A document's place in the request, and its relevance."""

    index: int = Field(description="The place of the document in the request.")
    relevance_score: float = Field(description="From 0 to 1, unless `raw_scores` is true.")
    document: RankedDocument | None = None


class ApiVersion(Body):
    """The version of Cohere's API that is spoken."""

    version: str


class BilledUnits(Body):
    """What Cohere would count."""

    input_tokens: int
    search_units: int | None = None


class Meta(Body):
    """What Cohere's clients count."""

    api_version: ApiVersion
    billed_units: BilledUnits


class RerankAnswer(Body):
    """The documents, the most relevant first."""

    id: str
    object: Literal["rerank"]
    model: str
    results: list[RankedResult]
    usage: Usage
    meta: Meta


class ContentPart(Body):
    """A part of an input; only texts are read."""

    type: str
    text: str | None = None


class EmbedInput(Body):
    """An input made of parts, which are joined by spaces."""

    content: Annotated[list[ContentPart], EndAtFirst()]


class EmbedRequest(Body):
    """Texts to embed."""

    model_config = example(
        model="my-model",
        texts=["Use open().", "Use sorted()."],
        input_type="search_document",
        embedding_types=["float"],
    )

    model: ModelName = None
    texts: Texts | None = Field(None, description="The texts; either these or `inputs`.")
    inputs: Annotated[list[EmbedInput], EndAtFirst()] | None = Field(
        None, description="Inputs made of parts, which must be texts."
    )
    images: Annotated[list[str], EndAtFirst()] | None = Field(
        None, description="Refused: the models read texts."
    )
    input_type: (
        Literal["search_document", "search_query", "classification", "clustering", "image"] | None
    ) = Field(
        None,
        description="`search_query` encodes queries (contexts), all others documents "
        "(candidates). By default documents.",
    )
    embedding_types: Annotated[list[EmbeddingType], EndAtFirst(), MinLen(1)] | None = Field(
        None,
        description="Forms of the embeddings: `float`; `base64` of little-endian float32; "
        "`ubinary` and `binary`, the signs of eight numbers in each byte.",
    )
    truncate: Literal["NONE", "START", "END", "LEFT", "RIGHT"] | None = Field(
        None, description="Accepted and ignored: texts are cut as the model was trained."
    )
    output_dimension: Count | None = Field(
        None, description="Keep only the first numbers of each vector, as Matryoshka allows."
    )
    max_tokens: Count | None = Field(None, description="Cut texts after so many tokens.")


class NamedEmbedRequest(EmbedRequest):
    """Texts to embed; the model must be named."""

    model: str = Field(description="The name of a served model, from `/v1/models`.")


class EmbeddingsByType(Body):
    """The vectors in each form that was asked for."""

    floats: list[list[float]] | None = Field(None, alias="float")
    base64: list[str] | None = None
    binary: list[list[int]] | None = None
    ubinary: list[list[int]] | None = None


class EmbedAnswer(Body):
    """The vectors of the texts, in their order."""

    id: str
    response_type: Literal["embeddings_by_type", "embeddings_floats"]
    texts: list[str]
    embeddings: EmbeddingsByType | list[list[float]] = Field(
        description="Lists of numbers where version 1 is asked for no types; else by type."
    )
    meta: Meta
