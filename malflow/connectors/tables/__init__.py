"""Rows of tables, whatever the database: their shapes, their changes, and transactions of them."""
