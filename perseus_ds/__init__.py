"""Remove energy bloat from pipeline training: a planned GPU clock for every instruction."""

__version__ = "0.1.0"
