"""A job with us inside, of any framework."""
