"""Every URL: health, accounts, operators' admin, API, pages."""

from django.contrib import admin
from django.urls import include, path

from jobs.stack import health

urlpatterns = [
    path("health/live", health.live),
    path("health/ready", health.ready),
    path("accounts/", include("allauth.account.urls")),
    path("ops/admin/", admin.site.urls),
    path("api/v1/", include("jobs.api.urls")),
    path("", include("jobs.web.urls")),
]
