"""Contracts that ship: what every GPU backend and every framework adapter keeps to, as test classes."""
