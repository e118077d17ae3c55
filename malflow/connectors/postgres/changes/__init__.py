"""Changes of Postgres tables as a source, by logical replication."""
