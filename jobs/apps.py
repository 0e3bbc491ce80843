from django.apps import AppConfig
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured


class JobsConfig(AppConfig):
    """The Django app: who may run what, and what happened to it."""

    name = "jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Sockets look again when a login or a membership ends; environments are what they are."""
        from jobs.live import revocation

        revocation.connect()
        _add_environments()


def _add_environments() -> None:
    """The operator's own, in every process alike. Raises: ImproperlyConfigured."""
    from engine.environments import add_environments
    from engine.environments.verifiers_bridge import allow_verifiers

    try:
        allow_verifiers(settings.VERIFIERS_ENVIRONMENTS)
        add_environments(settings.ENVIRONMENT_CLASSES)
    except ValueError as error:
        raise ImproperlyConfigured(str(error)) from error
