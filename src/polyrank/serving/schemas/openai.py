"""The bodies of OpenAI's calls."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from annotated_types import MinLen
from pydantic import Field, field_validator

from polyrank.serving.failures import RequestError
from polyrank.serving.schemas.base import Body, Count, EndAtFirst, Text, Usage, example

InputType = Literal["query", "document", "search_query", "search_document"]


class EmbeddingsRequest(Body):
    """Texts to embed."""

    model_config = example(model="my-model", input=["How do I open a file?", "Use open()."])

    model: str = Field(description="The name of a served bi- or poly-encoder, from `/v1/models`.")
    input: Text | Annotated[list[Text], EndAtFirst(), MinLen(1)] = Field(
        description="One text, or a list of texts. Token ids are not read: they are those of "
        "another model's tokeniser."
    )
    encoding_format: Literal["float", "base64"] | None = Field(
        None,
        description="`base64` gives the bytes of little-endian float32 numbers, a third of the "
        "size; OpenAI's client asks for it and decodes it. By default `float`.",
    )
    dimensions: Count | None = Field(
        None,
        description="Keep only the first numbers of each vector, and scale what is left to unit "
        "length again. Vectors of models trained with a Matryoshka loss stay useful when they are "
        "cut; those of other models get worse.",
    )
    output_dimension: Count | None = Field(None, description="Infinity's name of `dimensions`.")
    user: str | None = Field(None, description="Accepted and ignored.")
    input_type: InputType | None = Field(
        None,
        description="Whether the texts are queries (contexts) or documents (candidates). By "
        "default documents. An addition to OpenAI's fields: `extra_body={'input_type': 'query'}`.",
    )

    task: str | None = Field(
        None,
        description="Jina's field: `retrieval.query` means queries, anything else documents.",
    )
    late_chunking: bool | None = Field(
        None, description="Jina's field; true is refused, since each text has a vector of its own."
    )

    @property
    def is_query(self) -> bool:
        """Whether the texts are queries."""
        if self.input_type is not None:
            return self.input_type in ("query", "search_query")
        return self.task == "retrieval.query"

    @field_validator("late_chunking")
    @classmethod
    def refuse_late_chunking(cls, value: bool | None) -> bool | None:
        """Raise RequestError for texts that should be encoded as parts of one."""
        if value:
            raise RequestError(
                400,
                "late_chunking is not served: each text is encoded on its own.",
                "Leave it out.",
                code="unsupported_field",
                param="late_chunking",
            )
        return value

    @field_validator("input", mode="before")
    @classmethod
    def refuse_token_ids(cls, value: Any) -> Any:
        """Raise RequestError for the token ids of another model."""
        first = value[0] if isinstance(value, list) and value else None
        first = first[0] if isinstance(first, list) and first else first
        if isinstance(first, int) and not isinstance(first, bool):
            raise RequestError(
                400,
                "input has token ids, which belong to another model's tokeniser; texts were "
                "expected.",
                "Send texts. In LangChain, set check_embedding_ctx_length=False.",
                code="token_ids",
                param="input",
            )
        return value


class Embedding(Body):
    """The vector of one text."""

    object: Literal["embedding"]
    index: int = Field(description="The place of its text in `input`.")
    embedding: list[float] | str = Field(description="Numbers, or base64 of them.")


class EmbeddingsAnswer(Body):
    """The vectors of the texts, in their order."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class ModelCard(Body):
    """A served model."""

    id: str = Field(description="The name that requests call it by.")
    object: Literal["model"]
    created: int = Field(description="When it was loaded, in seconds since 1970.")
    owned_by: Literal["polyrank"]
    architecture: Literal["bi", "poly", "cross"]


class ModelList(Body):
    """All served models."""

    object: Literal["list"]
    data: list[ModelCard]
