"""Everything that `manage.py run` starts on one machine: Redis, web, workers, under a supervisor."""
