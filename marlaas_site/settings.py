"""All settings, from the environment where an installation differs.

Embedded defaults: SQLite, a private Redis and artifacts under `var/`. MARLAAS_VAR moves them all.
"""

import secrets
from pathlib import Path
from typing import Any

from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured

from engine.manager.policy import POLICIES
from jobs.stack.layout import kept_redis_port

from .environment import UNREADABLE, Environment

BASE_DIR = Path(__file__).resolve().parent.parent
env = Environment()

VAR_DIR = Path(env("MARLAAS_VAR", default=str(BASE_DIR / "var"))).resolve()
try:
    VAR_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds tenants' data
except OSError as error:
    raise ImproperlyConfigured(f"MARLAAS_VAR: {VAR_DIR} cannot be made: {error}") from error


def _secret_key() -> str:
    """The installation's own key, made once and readable by its user only."""
    path = VAR_DIR / "secret_key"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(50))
    key = path.read_text().strip()
    if not key:
        raise ImproperlyConfigured(f"{path} is empty: delete it, and a new key is made")
    return key


SECRET_KEY = env("SECRET_KEY", default="") or _secret_key()
# Former ones: sessions, and tenants' secrets that were saved under them, stay readable
SECRET_KEY_FALLBACKS = env.list("SECRET_KEY_FALLBACKS", default=[])
DEBUG = env.bool("DEBUG", default=False)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
WEB_HOST = env("WEB_HOST", default="127.0.0.1")  # where the web process listens
WEB_PORT = env.int("WEB_PORT", default=8000)
CSRF_TRUSTED_ORIGINS = env.list(
    "CSRF_TRUSTED_ORIGINS",
    default=[f"http://{host}:{WEB_PORT}" for host in ALLOWED_HOSTS if "*" not in host],
)
USE_TLS = env.bool("USE_TLS", default=False)  # behind a proxy that ends TLS
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = USE_TLS
SESSION_COOKIE_NAME = env("SESSION_COOKIE_NAME", default="marlaas_session")
SECURE_HSTS_SECONDS = 31_536_000 if USE_TLS else 0
SECURE_SSL_REDIRECT = USE_TLS
SECURE_REDIRECT_EXEMPT = [r"^health/"]  # probes come from the machine itself
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if USE_TLS else None
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "allauth",
    "allauth.account",
    "channels",
    "csp",
    "django_filters",
    "rest_framework",
    "knox",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "jobs",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "jobs.web.limits.RequestLimit",
    "allauth.account.middleware.AccountMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "marlaas_site.urls"
ASGI_APPLICATION = "marlaas_site.asgi.application"
WSGI_APPLICATION = None

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]


def _database() -> dict[str, Any]:
    url = env("DATABASE_URL", default="")
    if not url or url.startswith("sqlite"):
        config = env.db_url("DATABASE_URL", default=f"sqlite:///{VAR_DIR / 'db.sqlite3'}")
        config["OPTIONS"] = {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        }
        # Tests of several processes need a file, not memory.
        config["TEST"] = {"NAME": str(VAR_DIR / "test.sqlite3")}
        return config
    if not url.startswith(("postgres://", "postgresql://", "psql://", "pgsql://")):
        raise ImproperlyConfigured(
            "DATABASE_URL must be a URL that begins with postgres:// or sqlite://"
        )
    try:
        config = env.db_url("DATABASE_URL")
    except ValueError:
        raise ImproperlyConfigured(f"DATABASE_URL {UNREADABLE}") from None
    config["OPTIONS"] = {"pool": {"min_size": 1, "max_size": 8}}
    config["CONN_MAX_AGE"] = 0
    config["CONN_HEALTH_CHECKS"] = True  # or the pool hands out what a restart of the server broke
    return config


DATABASES = {"default": _database()}

REDIS_URL = env.address("REDIS_URL", "redis", "rediss", "unix")
REDIS_IS_PRIVATE = not REDIS_URL  # then `manage.py run` starts one
if REDIS_IS_PRIVATE:
    REDIS_PORT = env.port("REDIS_PORT", default=0) or kept_redis_port(VAR_DIR)
    REDIS_URL = f"redis://127.0.0.1:{REDIS_PORT}/0"
# Redis pub/sub ignores database numbers: installations that share a server need their own prefix.
REDIS_PREFIX = env("REDIS_PREFIX", default="marlaas")
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": REDIS_PREFIX,
    }
}
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "prefix": REDIS_PREFIX},
    }
}

ARTIFACTS_URL = env("ARTIFACTS_URL", default=f"file://{VAR_DIR / 'artifacts'}")

AUTH_USER_MODEL = "jobs.User"
AUTHENTICATION_BACKENDS = [
    "django.contrib.auth.backends.ModelBackend",
    "allauth.account.auth_backends.AuthenticationBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_ADAPTER = "jobs.web.accounts.AccountAdapter"
ACCOUNT_EMAIL_VERIFICATION = "none"
ALLAUTH_TRUSTED_PROXY_COUNT = env.int("NUM_PROXIES", default=0)  # else all share one address
EMAIL_BACKEND = env("EMAIL_BACKEND", default="django.core.mail.backends.console.EmailBackend")

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "jobs.api.auth.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_PARSER_CLASSES": ["jobs.api.parsers.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "DEFAULT_PAGINATION_CLASS": "jobs.api.pagination.Page",
    "DEFAULT_THROTTLE_CLASSES": ["jobs.api.throttles.ByUser", "jobs.api.throttles.Writes"],
    "DEFAULT_THROTTLE_RATES": {
        "user": env.rate("API_RATE", default="1200/min"),
        "writes": env.rate("API_WRITE_RATE", default="120/min"),
        "tokens": env.rate("API_TOKEN_RATE", default="20/hour"),
    },
    "NUM_PROXIES": env.int("NUM_PROXIES", default=0),
    "EXCEPTION_HANDLER": "jobs.api.errors.exception_handler",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "MARLaaS",
    "DESCRIPTION": "Reinforcement-learning fine-tuning of language models, many tenants at once.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.IsAuthenticated"],
    "COMPONENT_SPLIT_REQUEST": True,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "jobs.api.documents.add_errors",
    ],
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "ENUM_NAME_OVERRIDES": {
        "TaskState": "jobs.models.Task.State",
        "DatasetKind": "jobs.models.Dataset.Kind",
        "ImportState": "jobs.models.dataset.DatasetImport.State",
        "PreflightState": "jobs.models.preflight.Preflight.State",
    },
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
}
KNOX_TOKEN_MODEL = "knox.AuthToken"  # noqa: S105 (the name of a model)
REST_KNOX = {"TOKEN_PREFIX": "mls_", "AUTH_HEADER_PREFIX": "Token", "TOKEN_TTL": None}

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "connect-src": [SELF],
        "font-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
        "object-src": [NONE],
    }
}

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English")]
TIME_ZONE = env("TIME_ZONE", default="UTC")
USE_I18N = True
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = VAR_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
WHITENOISE_USE_FINDERS = True

MAX_UPLOAD_MIB = env.int("MAX_UPLOAD_MIB", default=2048)
DATA_UPLOAD_MAX_MEMORY_SIZE = 4 * 2**20  # of a form's fields; files go to disk
FILE_UPLOAD_MAX_MEMORY_SIZE = 2 * 2**20
FILE_UPLOAD_TEMP_DIR = str(VAR_DIR / "uploads")  # /tmp may be memory
Path(FILE_UPLOAD_TEMP_DIR).mkdir(mode=0o700, exist_ok=True)

# Who sees whose stages on the shared timeline: open (names), anonymous, own-only.
TIMELINE_PRIVACY = env.choice(
    "TIMELINE_PRIVACY", ("open", "anonymous", "own-only"), default="anonymous"
)

# How the planner schedules (engine/manager/policy.py); all but "shipped" are there for comparison.
SCHEDULE_POLICY = env.choice("MARLAAS_SCHEDULE_POLICY", tuple(POLICIES), default="shipped")

# Workers: which base models a rollout or training process serves, and how much it holds at once.
BASE_MODEL_PATH = env("MARLAAS_BASE_MODEL_PATH", default="")  # instead of the demo's
WORKER_NAME = env("MARLAAS_WORKER_NAME", default="")
WORKER_BASE_MODELS = env.list("MARLAAS_BASE_MODELS", default=[])
ROLLOUT_SLOTS = env.int("ROLLOUT_SLOTS", default=128)  # sequences the engine holds at once
# Addresses beside the public internet that tenants' tools and graders may call, also by http:
# network:port, such as 10.1.0.0/16:8080
OUTBOUND_ALLOWED = env.list("OUTBOUND_ALLOWED", default=[])
# An operator's own environments: name=package.module:Class, … (docs/environments.md)
ENVIRONMENT_CLASSES = env.dict("ENVIRONMENT_CLASSES", default={})
# Installed environments of the library verifiers that tenants may use: ["wordle"], or with the
# arguments that they may set, {"wordle": ["difficulty"]}
VERIFIERS_ENVIRONMENTS = env.json("VERIFIERS_ENVIRONMENTS", default=[])
ENVIRONMENT_EPISODES = 2_000  # that wait for tools and graders at once in one environment worker
# Memory of our own engine at most; KV 0: 1 GiB, or what one longest sequence needs if that is more
ROLLOUT_KV_MIB = env.int("ROLLOUT_KV_MIB", default=0)
ROLLOUT_ADAPTER_MIB = env.int("ROLLOUT_ADAPTER_MIB", default=4096)
DEVICE = env("MARLAAS_DEVICE", default="auto")  # of rollout and training; engine/models/device.py
TORCH_THREADS = env.int("TORCH_THREADS", default=0)  # 0: torch decides
# What generates: auto, torch or vllm (engine/rollout/engines.py). vLLM's servers are those at the
# URLs, or one that each rollout worker starts with the interpreter and the further arguments.
ROLLOUT_ENGINE = env("MARLAAS_ROLLOUT_ENGINE", default="auto")
VLLM_URLS = env.addresses("MARLAAS_VLLM_URLS", "http", "https")
VLLM_PYTHON = env("MARLAAS_VLLM_PYTHON", default="")
VLLM_ARGS = env("MARLAAS_VLLM_ARGS", default="")

# Benchmarks only: rollout and training take the times of this script and compute nothing
# (engine/emulation). Whoever serves anybody must not: tasks would seem to learn.
EMULATION = env("MARLAAS_EMULATION", default="")
if EMULATION and (
    USE_TLS or not REDIS_IS_PRIVATE or WEB_HOST not in ("127.0.0.1", "localhost", "::1")
):
    raise ImproperlyConfigured(
        "MARLAAS_EMULATION is for benchmarks on a machine by itself: it is refused with USE_TLS,"
        " REDIS_URL, or a WEB_HOST that others can reach"
    )

# How far the rollout engine's log-probs may be from the trainer's before a task is paused, in nats
# a token, for 16-bit weights (a hundredth of it for float32); 0: never. See docs/architecture.md.
MISMATCH_KL_MAX = env.float("MARLAAS_MISMATCH_KL_MAX", default=0.05)
CANARY_DIFF_MAX = env.float("MARLAAS_CANARY_DIFF_MAX", default=0.25)
if not (MISMATCH_KL_MAX >= 0 and CANARY_DIFF_MAX >= 0):
    raise ImproperlyConfigured(
        "MARLAAS_MISMATCH_KL_MAX and MARLAAS_CANARY_DIFF_MAX must be numbers of at least 0"
    )

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "filters": {"probes": {"()": "jobs.stack.quiet.QuietProbes"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"handlers": ["console"], "level": env.choice("LOG_LEVEL", LOG_LEVELS, default="INFO")},
    "loggers": {"django.request": {"filters": ["probes"]}},
}
