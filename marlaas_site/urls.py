"""Every URL: health, accounts, operators' admin, API, pages."""

from allauth.account.decorators import secure_admin_login
from django.contrib import admin
from django.urls import include, path, re_path

from jobs.stack import health
from jobs.web.accounts import no_such_page

# Operators sign in where everybody does: there attempts are counted.
admin.site.login = secure_admin_login(admin.site.login)  # type: ignore[method-assign]

# Of allauth's pages only these: operators make accounts and own their addresses.
OTHER_ACCOUNT_PAGES = r"^accounts/(?!(?:login|logout|inactive|reauthenticate|password/.+)/$)"

urlpatterns = [
    path("health/live", health.live),
    path("health/ready", health.ready),
    re_path(OTHER_ACCOUNT_PAGES, no_such_page),
    path("accounts/", include("allauth.account.urls")),
    path("ops/admin/", admin.site.urls),
    path("api/v1/", include("jobs.api.urls")),
    path("", include("jobs.web.urls")),
]
