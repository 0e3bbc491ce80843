"""Tasks: list, submit, look at, cancel, pause, resume, clone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from django.db.models import Max
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics, serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from engine.parameters import text
from jobs.models import Task, User
from jobs.services.priorities import LIMITS, PRIORITY
from jobs.services.tasks import (
    cancel_task,
    clone_task,
    pause_task,
    resume_task,
    set_priority,
    submit_task,
)
from jobs.services.tenants import choose_tenant

from .documents import ConfigField, GradersField
from .views import OwnedList, OwnedView, body_fields, find

FIELDS = ("name", "base_model", "dataset", "config", "graders", "priority")
KEY_HEADER = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="at most 100 characters; the same key and request again give the same task",
)


class PriorityField(serializers.IntegerField):
    """Its limits and its meaning."""

    def __init__(self, **options: Any) -> None:
        limits = {"min_value": LIMITS["low"], "max_value": LIMITS["high"]}
        super().__init__(**limits, help_text=PRIORITY["help"], **options)


class TaskSerializer(serializers.ModelSerializer[Task]):
    tenant = serializers.SlugRelatedField(slug_field="slug", read_only=True)
    base_model = serializers.SlugRelatedField(slug_field="slug", read_only=True)
    dataset_name = serializers.CharField(source="dataset.name", read_only=True)
    created_by = serializers.StringRelatedField()
    config = ConfigField()
    graders = GradersField()
    priority = PriorityField(read_only=True)
    version = serializers.IntegerField(
        source="last_version", allow_null=True, help_text="last committed; null: none yet"
    )

    class Meta:
        model = Task
        fields = (
            "id",
            "tenant",
            "name",
            "base_model",
            "dataset",
            "dataset_name",
            "config",
            "graders",
            "cloned_from",
            "created_by",
            "state",
            "reason",
            "pause_reason",
            "phase",
            "phase_since",
            "queue_position",
            "priority",
            "version",
            "num_prompts",
            "num_overlong",
            "group_s",
            "pass_s",
            "rollout_s",
            "submitted_at",
            "started_at",
            "ended_at",
        )


class SubmissionSerializer(serializers.Serializer[Any]):
    """A new task."""

    name = serializers.CharField(max_length=100)
    base_model = serializers.CharField(help_text="slug of a base model")
    dataset = serializers.UUIDField()
    config = ConfigField(required=False)
    graders = GradersField()
    priority = PriorityField(required=False, default=0)
    tenant = serializers.CharField(required=False, help_text="slug; not needed if in one only")


class CloneSerializer(serializers.Serializer[Any]):
    """What is to be different; `config` replaces single settings."""

    name = serializers.CharField(max_length=100, required=False)
    base_model = serializers.CharField(required=False)
    dataset = serializers.UUIDField(required=False)
    config = ConfigField(required=False)
    graders = GradersField(required=False)
    priority = PriorityField(required=False)


class ChangeSerializer(serializers.Serializer[Any]):
    """What may be changed of a task while it waits or runs."""

    priority = PriorityField()


def shown_tasks() -> Any:
    """Tasks with all that their serializer shows."""
    related = ("tenant", "base_model", "dataset", "created_by")
    return Task.objects.select_related(*related).annotate(last_version=Max("versions__number"))


def _answer(task: Task, status: int = 200) -> Response:
    return Response(TaskSerializer(shown_tasks().get(pk=task.pk)).data, status=status)


def _idempotency_key(request: Request) -> str | None:
    """The header's value. Raises: ValidationError."""
    value = request.headers.get("Idempotency-Key")
    try:
        return None if value is None else text(value, 100)
    except ValueError as error:
        raise ValidationError({"Idempotency-Key": [str(error)]}) from None


class Tasks(OwnedList):
    """The tasks of one's tenants, newest first."""

    ordering = ("-submitted_at", "id")
    serializer_class = TaskSerializer
    filterset_fields = ("state",)
    rows = shown_tasks()

    @extend_schema(
        request=SubmissionSerializer, responses={201: TaskSerializer}, parameters=[KEY_HEADER]
    )
    def post(self, request: Request) -> Response:
        """Submit one: it is queued, or refused with every wrong field."""
        data = body_fields(request, (*FIELDS, "tenant"))
        task = submit_task(
            tenant=choose_tenant(request.user, data.get("tenant")),
            user=request.user,
            name=data.get("name"),
            base_model=data.get("base_model"),
            dataset=data.get("dataset"),
            config=data.get("config", {}),
            graders=data.get("graders"),
            priority=data.get("priority", 0),
            idempotency_key=_idempotency_key(request),
        )
        return _answer(task, 201)


class TaskDetail(OwnedView, generics.RetrieveAPIView[Task]):
    """One task."""

    serializer_class = TaskSerializer
    rows = shown_tasks()

    def get_object(self) -> Task:
        """The task of the URL, or 404."""
        return find(self.rows, self.request, pk=self.kwargs["task_id"])

    @extend_schema(request=ChangeSerializer, responses=TaskSerializer)
    def patch(self, request: Request, task_id: Any) -> Response:
        """Change its priority; in force from the next plan on, within a second."""
        task = self.get_task()
        changes = body_fields(request, ("priority",))
        if "priority" not in changes:
            raise ValidationError({"priority": ["Must be given: it is all that may be changed."]})
        set_priority(task, request.user, changes["priority"])
        return _answer(task)


class TaskClone(OwnedView):
    """A new task like this one."""

    rows = Task.objects.all()

    @extend_schema(
        request=CloneSerializer, responses={201: TaskSerializer}, parameters=[KEY_HEADER]
    )
    def post(self, request: Request, task_id: Any) -> Response:
        """Submit a copy with changes."""
        task = self.get_task()
        changes = body_fields(request, FIELDS)
        key = _idempotency_key(request)
        return _answer(clone_task(task, request.user, changes, idempotency_key=key), 201)


class TaskVerb(OwnedView):
    """Moves a task to another state; 409 where its state forbids it."""

    rows = Task.objects.all()
    verb: ClassVar[Callable[[Task, User], None]]

    @extend_schema(request=None, responses=TaskSerializer)
    def post(self, request: Request, task_id: Any) -> Response:
        """The task as it is afterwards."""
        task = self.get_task()
        body_fields(request, ())
        type(self).verb(task, request.user)
        return _answer(task)


class TaskCancel(TaskVerb):
    """End the task; its quota is free at once, its versions stay."""

    verb = cancel_task


class TaskPause(TaskVerb):
    """Stop dispatching the task; what is under way ends."""

    verb = pause_task


class TaskResume(TaskVerb):
    """Let a paused task go on."""

    verb = resume_task
