"""How the database is reached, by DATABASE_URL."""

import pytest

from marlaas_site.settings import _database


def test_connections_of_the_pool_are_checked_before_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it every connection fails once after PostgreSQL was restarted, and a page with it."""
    monkeypatch.setenv("DATABASE_URL", "postgres://user@127.0.0.1:5432/marlaas")
    config = _database()
    assert config["OPTIONS"]["pool"]
    assert config["CONN_HEALTH_CHECKS"] is True
    assert config["CONN_MAX_AGE"] == 0  # a pool and connections kept by threads exclude each other


def test_sqlite_is_one_file_with_one_writer_that_readers_do_not_wait_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    options = _database()["OPTIONS"]
    assert options["transaction_mode"] == "IMMEDIATE"
    assert "journal_mode=WAL" in options["init_command"]
