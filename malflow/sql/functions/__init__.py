"""The functions of SQL: one table of signatures, and what the generated code calls."""
