"""The app of a server that is still loading. It needs no torch, so that it answers at once.

/health is 200 from the first moment, as whatever starts servers expects of a process that is
alive; /ready and everything else are 503 until the models are there.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from polyrank.serving.failures import RequestError, error_response
from polyrank.serving.middleware import Observe

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import Receive, Scope, Send

RETRY_SECONDS = 2


class Loading:
    """Answers while an app is being made, then hands over to it."""

    def __init__(
        self, make: Callable[[], FastAPI], *, loaded: Callable[[FastAPI], None], timeout: float
    ) -> None:
        """Begin when the server starts.

        Args:
            make: Makes the app; runs in a thread.
            loaded: Called in the event loop when the app answers.
            timeout: The most seconds of a request.
        """
        self.make = make
        self.loaded = loaded
        self.app: FastAPI | None = None
        self.failure: BaseException | None = None
        self.is_draining = False
        self.stop: Callable[[], None] = lambda: None
        """Ends the server where the app cannot be made."""
        self.lifetime = AsyncExitStack()
        self.waiting = Observe(
            answer_meanwhile,
            timeout=timeout,
            finished=lambda *_: None,
            is_draining=lambda: self.is_draining,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, by the app if it is there."""
        if scope["type"] == "lifespan":
            await self.live(receive, send)
        elif self.app is None:
            await self.waiting(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def drain(self) -> None:
        """Say in every answer that the server is about to stop."""
        self.is_draining = True
        if self.app is not None:
            self.app.state.draining = True

    async def live(self, receive: Receive, send: Send) -> None:
        """Load while the server runs, and end the app with it."""
        await receive()
        loop = asyncio.get_running_loop()
        begun = loop.create_task(self.load(loop))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        begun.cancel()
        await asyncio.wait([begun])
        await self.lifetime.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def load(self, loop: asyncio.AbstractEventLoop) -> None:
        """Make the app in a thread that does not hold up the end of the process."""
        made: asyncio.Future[Any] = loop.create_future()

        def tell(method: Callable[[Any], None], value: Any) -> None:
            if not made.done():
                method(value)

        def work() -> None:
            method: Callable[[Any], None] = made.set_result
            try:
                outcome: Any = self.make()
            except BaseException as error:
                method, outcome = made.set_exception, error
            if not loop.is_closed():
                loop.call_soon_threadsafe(tell, method, outcome)

        threading.Thread(target=work, name="loading", daemon=True).start()
        try:
            app = await made
            await self.lifetime.enter_async_context(app.router.lifespan_context(app))
        except Exception as error:
            self.failure = error
            self.stop()
            return
        app.state.draining = self.is_draining
        self.app = app
        self.loaded(app)


async def answer_meanwhile(scope: Scope, receive: Receive, send: Send) -> None:
    """What is answered before the models are there."""
    if scope["path"] == "/health":
        await JSONResponse({"status": "ok"})(scope, receive, send)
        return
    error = RequestError(
        503,
        "The server is still loading its models.",
        "Try again in a moment.",
        code="loading",
        retry_after=RETRY_SECONDS,
    )
    await error_response(error, scope)(scope, receive, send)
