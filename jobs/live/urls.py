"""URLs of snapshots and the event stream over HTTP; included by jobs.api.urls."""

from django.urls import path

from .views import TaskSnapshotView

urlpatterns = [
    path("tasks/<uuid:task_id>/snapshot", TaskSnapshotView.as_view(), name="task-snapshot"),
]
