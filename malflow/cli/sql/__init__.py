"""SQL at a prompt: files and topics in quotes are tables, and the rows of a query are shown."""
