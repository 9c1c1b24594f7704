"""The bodies of text-embeddings-inference's calls."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from polyrank.serving.schemas.base import Body, Count, ModelName, Text, Texts, example

Prompt = Literal["query", "document", "passage"]
Direction = Literal["left", "right", "Left", "Right"]
Truncated = Annotated[
    bool | None,
    Field(description="Accepted and ignored: longer texts are cut as the model was trained."),
]


class TeiEmbedRequest(Body):
    """Texts to embed."""

    model_config = example(inputs=["Use open().", "Use sorted()."])

    inputs: str | Texts = Field(description="One text, or a list of texts.")
    normalize: bool | None = Field(
        None,
        description="Whether vectors get unit length; by default they do. If false, they are as "
        "the model gives them.",
    )
    prompt_name: Prompt | None = Field(
        None,
        description="`query` encodes the texts as queries (contexts); `document` or `passage` as "
        "documents (candidates), which is the default. It may stand in the address, too.",
    )
    dimensions: Count | None = Field(
        None, description="Keep only the first numbers of each vector, as Matryoshka allows."
    )
    truncate: Truncated = None
    truncation_direction: Direction | None = Field(None, description="Accepted and ignored.")
    model: ModelName = None


class TeiRerankRequest(Body):
    """A query and the texts to order by their relevance."""

    model_config = example(
        query="How do I open a file?", texts=["Use open().", "Use sorted()."], return_text=True
    )

    query: Text | Texts = Field(description="A text, or the turns of a dialogue, oldest first.")
    texts: Texts = Field(description="The texts to order.")
    raw_scores: bool | None = Field(
        None, description="Give the model's own scores instead of numbers from 0 to 1."
    )
    return_text: bool | None = Field(None, description="Whether each result has its text.")
    top_n: Count | None = Field(None, description="Give only the best so many texts.")
    truncate: Truncated = None
    truncation_direction: Direction | None = Field(None, description="Accepted and ignored.")
    model: ModelName = None


class Rank(Body):
    """A text's place in the request, and its relevance."""

    index: int
    score: float = Field(description="From 0 to 1, unless `raw_scores` is true.")
    text: str | None = None


class SimilarityInputs(Body):
    """A text, and those to compare it with."""

    source_sentence: str
    sentences: Texts


class SimilarityRequest(Body):
    """A text, and those to compare it with."""

    model_config = example(
        inputs={"source_sentence": "How do I open a file?", "sentences": ["Use open()."]}
    )

    inputs: SimilarityInputs
    parameters: dict[str, Any] | None = Field(None, description="Accepted and ignored.")
    model: ModelName = None


class Info(Body):
    """What is served, and its limits."""

    model_id: str
    model_sha: str | None
    model_dtype: str
    model_type: dict[str, Any]
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: str
    sha: str | None
    docker_label: str | None
