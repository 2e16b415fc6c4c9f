"""The files that a job leaves, each a record with a reader and a writer."""
