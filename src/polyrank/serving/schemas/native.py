"""The bodies of polyrank's own calls: search, candidates, reload."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from annotated_types import Ge, Le, MinLen
from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self

from polyrank.serving.failures import RequestError
from polyrank.serving.schemas.base import Body, EndAtFirst, OwnBody, Text, Texts, example, whole

MOST_HITS = 10_000
"""The most hits of one context."""

HitCount = Annotated[int, Ge(1), Le(MOST_HITS), BeforeValidator(whole)]

LONGEST_FILTER = 10_000

ContextText = Text | Texts
"""A text, or the turns of a dialogue, oldest first."""


class SearchRequest(OwnBody):
    """What to look for in the index."""

    model_config = example(context="How do I open a file?", top_k=3)

    context: ContextText | None = Field(
        None, description="A text, or the turns of a dialogue, oldest first."
    )
    contexts: Annotated[list[ContextText], EndAtFirst(), MinLen(1)] | None = Field(
        None, description="Several contexts, instead of `context`."
    )
    top_k: HitCount = Field(10, description="Hits for each context.")
    filter: str | None = Field(
        None,
        max_length=LONGEST_FILTER,
        description='A condition on the metadata, such as `lang == "en" and year >= 2020`.',
    )
    exact: bool = Field(
        False,
        description="Certify that there are no better candidates. By default, an index with a "
        "search structure may miss some.",
    )
    rerank: bool | None = Field(
        None, description="Have the reranker order what is found; by default, if there is one."
    )
    num_candidates: HitCount = Field(100, description="How many candidates the reranker orders.")

    @model_validator(mode="after")
    def require_contexts(self) -> Self:
        """Raise RequestError unless there is a context, or several, and none is empty."""
        if (self.context is None) == (self.contexts is None):
            given = "both are" if self.contexts is not None else "neither is"
            raise RequestError(
                400,
                f"The body must have context or contexts, and {given} there.",
                "Send one of them: a text, a list of turns, or contexts as a list of those.",
                param="context",
            )
        for place, context in enumerate(self.listed):
            if not any([context] if isinstance(context, str) else context):
                name = "context" if self.contexts is None else f"contexts[{place}]"
                raise RequestError(
                    400,
                    f"{name} is empty.",
                    "Send a text or turns.",
                    code="empty_input",
                    param="context" if self.contexts is None else "contexts",
                )
        return self

    @property
    def listed(self) -> list[ContextText]:
        """All contexts."""
        return self.contexts if self.contexts is not None else [self.context or ""]


class FoundHit(Body):
    """A candidate that was found."""

    id: str
    score: float = Field(description="The model's own score; the reranker's, if it has reranked.")
    text: str
    metadata: dict[str, Any]


class Report(Body):
    """How the hits of one context were found."""

    strategy: Literal["scan", "bounded", "searches", "approximate"]
    num_candidates: int = Field(description="The candidates that pass the filter.")
    num_scored: int = Field(description="How many of them got the full score.")
    certified: bool = Field(
        description="Whether no other candidate can be among those found, before reranking."
    )
    num_reranked: int = Field(description="How many the reranker has ordered.")


class Result(Body):
    """The hits of one context, best first."""

    hits: list[FoundHit]
    report: Report


class Milliseconds(Body):
    """Where the time of the request went, in milliseconds."""

    queue: float
    tokenise: float
    model: float
    search: float


class SearchAnswer(Body):
    """What was found for each context, in their order."""

    results: list[Result]
    model: str = Field(description="The model of the index.")
    reranker: str | None = Field(description="The model that reranked, if one did.")
    times: Milliseconds


class GivenCandidate(OwnBody):
    """A candidate to add, or to replace the one with its id by."""

    id: Text
    text: Text
    metadata: dict[str, Any] | None = Field(
        None, description="Fields that filters can name: texts, numbers and truth values."
    )


class UpsertRequest(OwnBody):
    """Candidates to add or to replace."""

    model_config = example(
        candidates=[{"id": "a1", "text": "Use open().", "metadata": {"year": 2026}}]
    )

    candidates: Annotated[list[GivenCandidate], EndAtFirst(), MinLen(1)]


class UpsertAnswer(Body):
    """The change is on disk."""

    upserted: int
    total: int = Field(description="The number of candidates in the index now.")


class DeleteRequest(OwnBody):
    """Candidates to delete."""

    model_config = example(ids=["a1"])

    ids: Texts


class DeleteAnswer(Body):
    """The change is on disk."""

    deleted: int
    missing: list[str] = Field(description="Ids that no candidate had.")
    total: int = Field(description="The number of candidates in the index now.")


class CandidateAnswer(Body):
    """A candidate of the index."""

    id: str
    text: str
    metadata: dict[str, Any]


class ReloadAnswer(Body):
    """What is served now."""

    models: list[str]
    total: int | None = Field(description="The number of candidates in the index, if there is one.")
