"""URLs of the pages."""

from django.urls import path
from django.views.generic import RedirectView

from . import (
    datasets,
    downloads,
    graders,
    new_task,
    operations,
    people,
    preflight,
    secrets,
    tasks,
    tenants,
)

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="tasks"), name="home"),
    path("tasks/", tasks.task_list, name="tasks"),
    path("tasks/new/", new_task.new_task, name="new-task"),
    path("tasks/new/check/", preflight.check_task, name="check-task"),
    path("preflights/<uuid:preflight_id>/", preflight.preflight_page, name="preflight"),
    path("preflights/<uuid:preflight_id>/part/", preflight.preflight_part, name="preflight-part"),
    path("tasks/<uuid:task_id>/", tasks.task_detail, name="task"),
    path("tasks/<uuid:task_id>/cancel/", tasks.confirm_cancel, name="confirm-cancel"),
    path("tasks/<uuid:task_id>/cancel/now/", tasks.cancel, name="cancel-task"),
    path("tasks/<uuid:task_id>/pause/", tasks.pause, name="pause-task"),
    path("tasks/<uuid:task_id>/resume/", tasks.resume, name="resume-task"),
    path("tasks/<uuid:task_id>/priority/", tasks.change_priority, name="task-priority"),
    path(
        "tasks/<uuid:task_id>/versions/<int:number>/adapter.zip", downloads.adapter, name="adapter"
    ),
    path("datasets/", datasets.dataset_list, name="datasets"),
    path("datasets/source/", datasets.dataset_source, name="dataset-source"),
    path("datasets/imports/<uuid:import_id>/", datasets.dataset_import, name="dataset-import"),
    path("datasets/<uuid:dataset_id>/", datasets.dataset_detail, name="dataset"),
    path("graders/", graders.grader_list, name="graders"),
    path("graders/new/", graders.new_grader, name="new-grader"),
    path("graders/<uuid:grader_id>/", graders.grader_detail, name="grader"),
    path("graders/<uuid:grader_id>/delete/", graders.delete, name="delete-grader"),
    path("tenant/", tenants.tenant_page, name="tenant"),
    path("tenant/switch/", tenants.switch_tenant, name="switch-tenant"),
    path("tenant/secrets/", secrets.secret_list, name="secrets"),
    path("tenant/secrets/<uuid:secret_id>/", secrets.secret_detail, name="secret"),
    path("tenant/secrets/<uuid:secret_id>/delete/", secrets.delete, name="delete-secret"),
    path("account/", people.account, name="account"),
    path("account/theme/", people.set_theme, name="set-theme"),
    path("account/tokens/", people.create_token, name="create-token"),
    path("account/tokens/<uuid:token_id>/revoke/", people.revoke_token, name="revoke-token"),
    path("ops/", RedirectView.as_view(pattern_name="operator-tenants")),
    path("ops/planner/", operations.planner_page, name="operator-planner"),
    path("ops/planner/timeline/", operations.timeline_page, name="operator-timeline"),
    path("ops/tenants/", tenants.operator_tenants, name="operator-tenants"),
    path("ops/tenants/<slug:slug>/", tenants.operator_tenant, name="operator-tenant"),
]
