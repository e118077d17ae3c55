"""Rows of tables, whatever the database: their shapes, their changes, and what a transaction of them comes to."""
