"""What the episodes of an environment worker may use: sandboxes, processes, the guarded client.

Made once in the worker's event loop; a task gets them with its tenant's limits and its own secrets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from django.conf import settings

from engine.environments import Context, Environment
from engine.environments.corpus import Corpora
from engine.environments.mediawiki import MediaWiki
from engine.outbound import Limits, Outbound, parse_allowed
from engine.rewards import Services, parse_graders
from engine.rewards.workers import Workers
from engine.sandbox import Sandboxes
from jobs.models import BaseModel, Task
from jobs.services.corpora import read_corpus
from jobs.services.secrets import named_secrets, secrets_of
from jobs.services.tokenizers import chat_tokenizer

TENANT_TOOL_CALLS = 64  # of one tenant at once


async def make_services() -> Services:
    """What all tasks share, belonging to the loop that this runs in."""
    outbound = Outbound(
        allowed=parse_allowed(settings.OUTBOUND_ALLOWED),
        limits=Limits(concurrency=TENANT_TOOL_CALLS),
    )
    return Services(
        outbound=outbound,
        sandboxes=Sandboxes(),
        workers=Workers(),
        corpora=Corpora(settings.VAR_DIR / "indexes", read_corpus),
        mediawiki=MediaWiki(outbound),
    )


async def close_services(services: Services) -> None:
    """End what was started."""
    for service in (services.sandboxes, services.workers, services.outbound):
        if service is not None:
            await service.close()


def read_settings(
    task_id: str, base_model: str, services_of: Callable[[str], Services]
) -> tuple[Environment, Context]:
    """What the episodes of a task need, from its row. services_of: by the tenant's key."""
    task = Task.objects.only("graders", "config", "tenant_id").get(pk=task_id)
    config = task.hyperparameters
    path = BaseModel.objects.values_list("path", flat=True).get(slug=base_model)
    context = Context(
        chat=chat_tokenizer(path),
        graders=parse_graders(task.graders),
        services=replace(
            services_of(str(task.tenant_id)),
            secrets=secrets_of(task.tenant_id, named_secrets(task.graders, task.config)),
        ),
        max_turns=config.max_turns,
    )
    return config.environment, context
