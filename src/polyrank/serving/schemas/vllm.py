"""The bodies of vLLM's call for scores."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from polyrank.serving.schemas.base import Body, ModelName, Texts, Usage, example


class ScoreRequest(Body):
    """Pairs of texts: the first with each of the second, or one by one."""

    model_config = example(text_1="How do I open a file?", text_2=["Use open().", "Use sorted()."])

    model: ModelName = None
    text_1: str | Texts | None = Field(
        None, description="One text or a list. Also called `queries` or `data_1`."
    )
    text_2: str | Texts | None = Field(
        None,
        description="As many texts as in `text_1`, or any number of them if that is one. Also "
        "called `documents`, `items` or `data_2`.",
    )
    queries: str | Texts | None = Field(None, description="The same as `text_1`.")
    data_1: str | Texts | None = Field(None, description="The same as `text_1`.")
    documents: str | Texts | None = Field(None, description="The same as `text_2`.")
    items: str | Texts | None = Field(None, description="The same as `text_2`.")
    data_2: str | Texts | None = Field(None, description="The same as `text_2`.")
    use_activation: bool | None = Field(
        None, description="If false, scores are the model's own instead of numbers from 0 to 1."
    )
    raw_scores: bool | None = Field(None, description="If true, the same as above.")


class Score(Body):
    """The score of a pair."""

    index: int
    object: Literal["score"]
    score: float


class ScoreAnswer(Body):
    """The scores, in the order of the pairs."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Score]
    usage: Usage
