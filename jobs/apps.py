from django.apps import AppConfig


class JobsConfig(AppConfig):
    """The Django app: who may run what, and what happened to it."""

    name = "jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Sockets look again when a login or a membership ends."""
        from jobs.live import revocation

        revocation.connect()
