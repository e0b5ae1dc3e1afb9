"""What a migration asks a database: the state of a column, indexes, triggers, free names, locks and nodes."""
