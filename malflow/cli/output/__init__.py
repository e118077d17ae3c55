"""What commands write: tables, screens, documents, logs and errors."""
