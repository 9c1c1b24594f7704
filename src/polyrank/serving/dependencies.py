"""What routes are given: the runtime of the app, and the flow of the request.

Coroutines all, like the routes: FastAPI runs other functions in a pool of threads, each of which
costs a request more than what it asks here.
"""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from polyrank.serving.runtime import Runtime
from polyrank.serving.scheduling.flow import Flow


async def runtime_of(request: Request) -> Runtime:
    """The runtime of the app that serves a request."""
    return cast("Runtime", request.app.state.runtime)


async def flow_of(request: Request) -> Flow:
    """The flow of a request, which the middleware made."""
    return cast("Flow", request.state.flow)


RuntimeOf = Annotated[Runtime, Depends(runtime_of)]
FlowOf = Annotated[Flow, Depends(flow_of)]
