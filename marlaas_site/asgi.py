"""HTTP to Django, /ws/ to Channels."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "marlaas_site.settings")
http = get_asgi_application()

from channels.routing import ProtocolTypeRouter  # noqa: E402

from jobs.live.routing import websocket  # noqa: E402

application = ProtocolTypeRouter({"http": http, "websocket": websocket})
