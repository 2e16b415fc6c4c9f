"""The HTML page: what it says, what its figures show, its template, style and script."""
