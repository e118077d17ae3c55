"""Binding: names become columns, calls become functions, and each expression gets its type."""
