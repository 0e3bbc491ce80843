"""The Celery application. Every setting has a measured reason: docs/architecture.md, "Queues"."""

import logging
import os
from typing import Any

import kombu.transport.virtual.base
from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "marlaas_site.settings")

app = Celery("marlaas")


def _configure() -> None:
    from django.conf import settings

    app.conf.update(
        broker_url=settings.REDIS_URL,
        task_serializer="msgpack",
        accept_content=["msgpack", "json"],
        result_backend=None,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        worker_send_task_events=False,
        task_send_sent_event=False,
        task_track_started=False,
        worker_enable_remote_control=False,  # liveness is a row; stop by signal
        task_acks_late=True,  # a pool takes exactly as many messages as it has threads
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=False,
        worker_hijack_root_logger=False,
        task_default_queue="planning",
        broker_pool_limit=4,
        broker_connection_retry=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        task_publish_retry_policy={
            "max_retries": 60,
            "interval_start": 0,
            "interval_step": 0.2,
            "interval_max": 1,
        },
        broker_transport_options={
            "ack_emulation": False,  # leases redeliver, the broker does not
            "global_keyprefix": f"{settings.REDIS_PREFIX}:",
            "socket_timeout": 5,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            "health_check_interval": 10,
            "retry_on_timeout": False,  # a repeated LPUSH is a double
            "priority_steps": [0, 9],
        },
        imports=["jobs.workers"],
        beat_schedule={
            "plan": {
                "task": "planning.tick",
                "schedule": 1.0,
                "options": {"queue": "planning", "expires": 5, "retry": False},
            },
            "clean": {
                "task": "chores.clean",
                "schedule": 30.0,
                "options": {"queue": "chores", "expires": 30, "retry": False},
            },
        },
        beat_schedule_filename=str(settings.VAR_DIR / "beat-schedule"),
    )


def _no_emergency_dump(state: dict[Any, Any], *_: Any, **__: Any) -> str:
    """Stands in for kombu's habit of pickling unacknowledged messages into the temporary directory.

    They hold tenants' tokens, and the leases generate them again anyway.
    """
    logging.getLogger(__name__).warning("%d messages dropped with a lost broker", len(state))
    return os.devnull


_configure()
kombu.transport.virtual.base.emergency_dump_state = _no_emergency_dump
