"""HTTP to Django, /ws/ to Channels."""

import os

from django.conf import settings
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "marlaas_site.settings")
http = get_asgi_application()

from channels.routing import ProtocolTypeRouter  # noqa: E402

from jobs.api.body_limit import BodyLimit  # noqa: E402
from jobs.api.signed_in import person_of  # noqa: E402
from jobs.live.routing import websocket  # noqa: E402

MAX_BODY_BYTES = 2 * 2**20
MAX_UPLOAD_BYTES = (settings.MAX_UPLOAD_MIB + 1) * 2**20  # a file and the form around it
UPLOADS = dict.fromkeys(("/datasets/", "/api/v1/datasets"), MAX_UPLOAD_BYTES)
limited = BodyLimit(http, MAX_BODY_BYTES, UPLOADS, person_of)
application = ProtocolTypeRouter({"http": limited, "websocket": websocket})
