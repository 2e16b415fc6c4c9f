"""The HTML page: its text, what its figures show, its template, style and script."""
