"""The manager: decides what happens next. Pure: no clock, no database, no network."""
