"""URLs of the API."""

from django.urls import include, path, re_path

from . import (
    catalogue,
    dataset_figures,
    dataset_imports,
    datasets,
    documents,
    events,
    operators,
    people,
    steps,
    tasks,
    timeline,
    tokens,
    trajectories,
    versions,
    views,
)

TASK = "tasks/<uuid:task_id>"
STEP = f"{TASK}/steps/<int:number>"

urlpatterns = [
    path("me", people.Me.as_view(), name="api-me"),
    path("tenants", people.Tenants.as_view(), name="api-tenants"),
    path("quota", people.Quota.as_view(), name="api-quota"),
    path("tokens", tokens.Tokens.as_view(), name="api-tokens"),
    path("tokens/<uuid:token_id>", tokens.TokenDetail.as_view(), name="api-token"),
    path("base-models", catalogue.BaseModels.as_view(), name="api-base-models"),
    path("reward-functions", catalogue.RewardFunctions.as_view(), name="api-reward-functions"),
    path("settings", catalogue.Settings.as_view(), name="api-settings"),
    path("datasets", datasets.Datasets.as_view(), name="api-datasets"),
    path("datasets/preview", datasets.FilePreview.as_view(), name="api-file-preview"),
    path("datasets/<uuid:dataset_id>", datasets.DatasetDetail.as_view(), name="api-dataset"),
    path(
        "datasets/<uuid:dataset_id>/preview",
        datasets.DatasetPreview.as_view(),
        name="api-dataset-preview",
    ),
    path(
        "datasets/<uuid:dataset_id>/lengths",
        dataset_figures.DatasetLengths.as_view(),
        name="api-dataset-lengths",
    ),
    path(
        "datasets/<uuid:dataset_id>/overlap",
        dataset_figures.DatasetOverlap.as_view(),
        name="api-dataset-overlap",
    ),
    path("dataset-imports", dataset_imports.Imports.as_view(), name="api-dataset-imports"),
    path(
        "dataset-imports/<uuid:import_id>",
        dataset_imports.ImportDetail.as_view(),
        name="api-dataset-import",
    ),
    path("tasks", tasks.Tasks.as_view(), name="api-tasks"),
    path(TASK, tasks.TaskDetail.as_view(), name="api-task"),
    path(f"{TASK}/cancel", tasks.TaskCancel.as_view(), name="api-task-cancel"),
    path(f"{TASK}/pause", tasks.TaskPause.as_view(), name="api-task-pause"),
    path(f"{TASK}/resume", tasks.TaskResume.as_view(), name="api-task-resume"),
    path(f"{TASK}/clone", tasks.TaskClone.as_view(), name="api-task-clone"),
    path(f"{TASK}/steps", steps.Steps.as_view(), name="api-steps"),
    path(STEP, steps.StepDetail.as_view(), name="api-step"),
    path(f"{STEP}/groups", steps.Groups.as_view(), name="api-groups"),
    path(
        "groups/<uuid:group_id>/trajectories",
        trajectories.Trajectories.as_view(),
        name="api-trajectories",
    ),
    path(f"{TASK}/versions", versions.Versions.as_view(), name="api-versions"),
    path(
        f"{TASK}/versions/<int:number>/download",
        versions.VersionDownload.as_view(),
        name="api-version-download",
    ),
    path(f"{TASK}/spans", timeline.Spans.as_view(), name="api-spans"),
    path(f"{TASK}/events", events.TaskEvents.as_view(), name="api-events"),
    path("timeline", timeline.Timeline.as_view(), name="api-timeline"),
    path("operator/tenants", operators.OperatedTenants.as_view(), name="api-operated-tenants"),
    path(
        "operator/tenants/<slug:slug>",
        operators.OperatedTenant.as_view(),
        name="api-operated-tenant",
    ),
    path("schema", documents.Schema.as_view(), name="api-schema"),
    path("docs/", documents.Swagger.as_view(url_name="api-schema"), name="api-docs"),
    path("", include("jobs.live.urls")),
    re_path(r"^.*$", views.Unknown.as_view()),
]
