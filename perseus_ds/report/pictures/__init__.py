"""What is drawn with matplotlib: one function per picture, records in, a PNG out."""
