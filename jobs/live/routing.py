"""Where sockets go."""

from channels.routing import URLRouter

websocket = URLRouter([])
