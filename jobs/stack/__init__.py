"""What `manage.py run` starts on one machine: Redis, web and workers, under a supervisor."""
