#!/usr/bin/env python3
"""Django's command line for MARLaaS."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "marlaas_site.settings")
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:  # a person's setting: say it without a traceback
        sys.exit(f"Configuration: {error}")


if __name__ == "__main__":
    main()
