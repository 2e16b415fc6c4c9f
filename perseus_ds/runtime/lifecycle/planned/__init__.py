"""Around a plan: what is asked, given and expected, and how it comes into force."""
