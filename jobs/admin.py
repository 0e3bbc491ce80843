"""Django's admin for operators: people, tenants and base models to edit, the rest to look at.

State is written by services alone, so rows of runs are read-only here.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.http import HttpRequest

from jobs.models import (
    BaseModel,
    Dataset,
    Group,
    Member,
    PolicyVersion,
    Step,
    Task,
    Tenant,
    TokenUsage,
    User,
    Worker,
)


class MemberInline(admin.TabularInline):
    model = Member
    extra = 0
    autocomplete_fields = ("user", "tenant")


@admin.register(User)
class UserAdmin(DjangoUserAdmin):
    """People sign in by e-mail address, so it is asked for at once."""

    list_display = ("email", "username", "is_active", "is_staff", "last_login")
    search_fields = ("email", "username")
    ordering = ("email",)
    inlines = (MemberInline,)
    add_fieldsets = (
        (None, {"fields": ("username", "email", "usable_password", "password1", "password2")}),
    )
    fieldsets = (*(DjangoUserAdmin.fieldsets or ()), ("Pages", {"fields": ("theme",)}))


@admin.register(Tenant)
class TenantAdmin(admin.ModelAdmin):
    list_display = (
        "slug",
        "name",
        "weight",
        "max_concurrent_tasks",
        "tokens_per_day",
        "max_lora_rank",
        "is_suspended",
    )
    list_filter = ("is_suspended",)
    search_fields = ("slug", "name")
    inlines = (MemberInline,)


@admin.register(BaseModel)
class BaseModelAdmin(admin.ModelAdmin):
    list_display = ("slug", "name", "path", "dtype", "max_model_length", "is_enabled")
    list_filter = ("is_enabled",)


class ReadOnlyAdmin(admin.ModelAdmin):
    """Rows that only services write."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Task)
class TaskAdmin(ReadOnlyAdmin):
    list_display = ("name", "tenant", "base_model", "state", "phase", "reason", "submitted_at")
    list_filter = ("state", "base_model", "tenant")
    list_select_related = ("tenant", "base_model")
    search_fields = ("id", "name")


@admin.register(Dataset)
class DatasetAdmin(ReadOnlyAdmin):
    list_display = ("name", "tenant", "num_rows", "num_bytes", "created_at")
    list_filter = ("tenant",)
    list_select_related = ("tenant",)


@admin.register(Step)
class StepAdmin(ReadOnlyAdmin):
    list_display = ("task", "number", "state", "errors", "num_late", "num_refused", "opened_at")
    list_filter = ("state",)
    list_select_related = ("task",)


@admin.register(Group)
class GroupAdmin(ReadOnlyAdmin):
    list_display = ("id", "step_id", "index", "state", "attempt", "errors", "last_error")
    list_filter = ("state",)


@admin.register(PolicyVersion)
class PolicyVersionAdmin(ReadOnlyAdmin):
    list_display = ("task", "number", "digest", "num_bytes", "is_kept", "deleted_at")
    list_filter = ("is_kept",)
    list_select_related = ("task",)


@admin.register(TokenUsage)
class TokenUsageAdmin(ReadOnlyAdmin):
    list_display = ("tenant", "day", "tokens")
    list_filter = ("tenant",)
    list_select_related = ("tenant",)


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = ("name", "kind", "host", "pid", "started_at", "last_beat_at", "stopped_at")
    list_filter = ("kind",)
