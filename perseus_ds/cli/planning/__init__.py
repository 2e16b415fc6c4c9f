"""Commands about profiles and plans."""
