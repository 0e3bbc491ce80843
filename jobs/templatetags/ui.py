"""What templates say about states, numbers and times. Every number gets its unit beside it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from django import template
from django.conf import settings
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobs.models import Task, Tenant
from jobs.web.frame import current_tenant

register = template.Library()

# state: (glyph, word, tone). A state is never told by colour alone.
STATES = {
    "queued": ("◌", "Queued", "quiet"),
    "running": ("●", "Running", "live"),
    "paused": ("‖", "Paused", "warn"),
    "succeeded": ("✓", "Succeeded", "ok"),
    "failed": ("!", "Failed", "bad"),
    "cancelled": ("■", "Cancelled", "quiet"),
}


@register.simple_tag
def status(state: str) -> SafeString:
    """A task's state as glyph, word and colour."""
    glyph, word, tone = STATES[state]
    return format_html(
        '<span class="status" data-tone="{}" data-state="{}">'
        '<span class="glyph" aria-hidden="true">{}</span><span class="word">{}</span></span>',
        tone,
        state,
        glyph,
        word,
    )


@register.simple_tag
def canary(found: dict[str, Any]) -> SafeString:
    """The last check of a version's served weights; as static/js/task_page.js writes it."""
    if not found:
        return SafeString("–")
    tone, glyph, word = ("bad", "!", "off by") if found["problem"] else ("ok", "✓", "within")
    return format_html(
        '<span class="status" data-tone="{}" title="{}"><span class="glyph" aria-hidden="true">{}'
        '</span><span class="word">{} {} nats</span></span>',
        tone,
        found["problem"],
        glyph,
        word,
        plain(found["mean"]),
    )


@register.simple_tag
def sparkline(values: list[float]) -> SafeString:
    """A curve without axes, 88 x 20; its figures stand beside it."""
    if len(values) < 2:
        return SafeString("")
    low, high = min(values), max(values)
    height = (high - low) or 1.0
    points = " ".join(
        f"{88 * place / (len(values) - 1):.1f},{18 - 16 * (value - low) / height:.1f}"
        for place, value in enumerate(values)
    )
    return format_html(
        '<svg class="sparkline" viewBox="0 0 88 20" preserveAspectRatio="none" aria-hidden="true">'
        '<path d="M{}"/></svg>',
        points,
    )


@register.filter
def as_json(value: Any) -> str:
    """A plain value as JSON, to be escaped like any text."""
    return json.dumps(value, ensure_ascii=False)


@register.filter
def count(value: float | None) -> str:
    """A whole number with thin groups: 12 345."""
    return "–" if value is None else f"{value:,.0f}".replace(",", "\u202f")


@register.filter
def microseconds(value: float) -> str:
    """A short time given in microseconds: 35 µs, 1.96 ms, 0.392 s."""
    if value < 1_000:
        return f"{value:.0f} µs"
    return f"{value / 1_000:.3g} ms" if value < 1_000_000 else f"{value / 1_000_000:.3g} s"


@register.filter
def score(value: float | None) -> str:
    """A reward or another small number, to three places."""
    return "–" if value is None else f"{value:.3f}".replace("-", "\u2212")


@register.filter
def signed(value: float | None) -> str:
    """A difference with its sign."""
    return "–" if value is None else f"{value:+.3f}".replace("-", "\u2212")


@register.filter
def plain(value: float | None) -> str:
    """A figure of any size with about four significant digits: 0.0512, 3.10e\u22124."""
    if value is None:
        return "–"
    if value != 0 and not 1e-3 <= abs(value) < 1e6:
        digits, _, exponent = f"{value:.2e}".partition("e")
        text = f"{digits}e{int(exponent):+d}"
    else:
        text = f"{value:.4g}"
    return text.replace("-", "\u2212")


@register.filter
def size(num_bytes: int | None) -> str:
    """Bytes in a unit that a person reads: 18.4 MiB."""
    if num_bytes is None:
        return "–"
    value, unit = float(num_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


@register.filter
def duration(value: timedelta | float | None) -> str:
    """A stretch of time: 4 s, 2 min 5 s, 3 h 10 min, 2 d 4 h."""
    if value is None:
        return "–"
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size_s, unit, small_s, small in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size_s:
            return f"{whole // size_s} {unit} {whole % size_s // small_s} {small}"
    return f"{whole} s"


@register.simple_tag
def moment(at: datetime | None) -> SafeString:
    """A time, how long ago; the exact UTC time in the title."""
    if at is None:
        return SafeString("–")
    ago = duration(max(timedelta(0), timezone.now() - at))
    return format_html(
        '<time datetime="{}" title="{} UTC" data-ago>{} ago</time>',
        at.isoformat(),
        at.strftime("%Y-%m-%d %H:%M:%S"),
        ago,
    )


@register.simple_tag
def stretch(since: datetime | None) -> SafeString:
    """How long something has lasted; when it began, as exact UTC time, in the title."""
    if since is None:
        return SafeString("–")
    return format_html(
        '<time datetime="{}" title="since {} UTC">{}</time>',
        since.isoformat(),
        since.strftime("%Y-%m-%d %H:%M:%S"),
        duration(max(timedelta(0), timezone.now() - since)),
    )


@register.filter
def clock(at: str) -> str:
    """The time of day in an ISO time."""
    return at[11:19]


@register.simple_tag(takes_context=True)
def tenant(context: dict[str, Any]) -> Tenant | None:
    """The tenant that the page's lists are about."""
    return current_tenant(context["request"])


@register.simple_tag(takes_context=True)
def tenants(context: dict[str, Any]) -> list[Tenant]:
    """All tenants of the signed-in user."""
    return list(Tenant.objects.for_user(context["request"].user))


@register.simple_tag(takes_context=True)
def here(context: dict[str, Any], prefix: str) -> SafeString:
    """`aria-current` for a link of the rail whose section this page belongs to."""
    is_here = context["request"].path.startswith(prefix)
    return SafeString('aria-current="page"') if is_here else SafeString("")


@register.filter
def may_pause(task: Task) -> bool:
    return task.state == Task.State.RUNNING


@register.filter
def may_resume(task: Task) -> bool:
    return task.state == Task.State.PAUSED


@register.simple_tag
def sends_mail() -> bool:
    """Whether e-mail leaves this machine; by default it is only written to the log."""
    return "console" not in settings.EMAIL_BACKEND


@register.simple_tag
def states() -> list[str]:
    """Every state of a task, to make a template of each."""
    return list(STATES)
