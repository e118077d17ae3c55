"""Rows of tables, whatever the database: their shapes, their changes, and what an epoch of them comes to."""
