"""URLs of snapshots and the event stream over HTTP; included by jobs.api.urls."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
