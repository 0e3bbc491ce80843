"""Where sockets go."""

from typing import Any

from channels.routing import URLRouter
from django.urls import path, re_path

from .access import user_of_cookie, user_of_token
from .socket import live_app


async def refuse(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """There is no socket at this path."""
    await receive()
    await send({"type": "websocket.close"})


websocket = URLRouter(
    [
        path("ws/v1/live", live_app(user_of_cookie, check_origin=True)),
        path("ws/v1/cli", live_app(user_of_token, check_origin=False)),
        re_path("", refuse),
    ]
)
