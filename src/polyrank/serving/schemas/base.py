"""What all bodies share: strict types, and the texts of a request.

A number is not a text, and "3" is not a number. Unknown fields are ignored where other services'
clients call, as those services do; our own calls refuse them.
"""

from __future__ import annotations

from typing import Annotated, Any

from annotated_types import Ge, MinLen
from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, model_validator

from polyrank.errors import nearest
from polyrank.serving.failures import RequestError

LONGEST_NAME = 60
"""An error repeats no more characters than this of an unknown name."""


class EndAtFirst(FailFast):
    """Ends the reading of a list at its first wrong item. FailFast itself cannot be in a union."""

    def __hash__(self) -> int:
        return hash(self.fail_fast)


Text = Annotated[str, MinLen(1)]
"""A text that is not empty."""
Texts = Annotated[list[str], EndAtFirst(), MinLen(1)]
"""At least one text; reading ends at the first item that is not one."""


def whole(value: Any) -> Any:
    """1.0 as 1: JSON has one kind of numbers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Count = Annotated[int, Ge(1), BeforeValidator(whole)]
"""A whole number of at least 1."""

ModelName = Annotated[
    str | None,
    Field(description="The name of a served model, from `/v1/models`; by default the first able."),
]


class Body(BaseModel):
    """Base of what is sent and what is answered."""

    model_config = ConfigDict(strict=True, extra="ignore", protected_namespaces=())


class OwnBody(Body):
    """Base of what our own calls take."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def require_known(cls, value: Any) -> Any:
        """Raise RequestError for a field that there is not, naming the nearest."""
        for name in value if isinstance(value, dict) else ():
            if name not in cls.model_fields:
                shown = str(name)[:LONGEST_NAME]
                raise RequestError(
                    400,
                    f"There is no field {shown!r}.",
                    f"{nearest(shown, cls.model_fields)} /docs describes the fields.",
                    code="unknown_field",
                    param=shown,
                )
        return value


def example(**fields: Any) -> ConfigDict:
    """The settings of a body that /docs shows with these fields."""
    return ConfigDict(json_schema_extra={"examples": [fields]})


class Usage(Body):
    """The tokens that were read."""

    prompt_tokens: int = Field(description="Tokens read, special ones included.")
    total_tokens: int = Field(description="The same: nothing is generated.")


def usage(num_tokens: int) -> dict[str, int]:
    """The tokens that were read, as answers give them."""
    return {"prompt_tokens": num_tokens, "total_tokens": num_tokens}


def require_items(name: str, count: int, most: int) -> None:
    """Raise RequestError for more texts or pairs than one request may have."""
    if count > most:
        raise RequestError(
            413,
            f"{name} has {count} items; one request may have {most}.",
            "Send several requests, or start the server with a greater --max-items.",
            code="too_many_items",
            param=name,
        )
