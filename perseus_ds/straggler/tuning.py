"""The numbers that the answer to stragglers rests on; docs/stragglers.md states what each buys."""

WINDOW = 16
"""Iterations that a median is taken over."""

REVIEW_EVERY = 4
"""Iterations between two medians after one that changed a budget; then twice as many, and so on."""

REVIEW_EVERY_MOST = 8
"""The most iterations between two medians while somebody waits."""

REVIEW_EVERY_WHILE_CALM = 16
"""Iterations between two medians while nobody waits."""

FALSE_ALARM = 3e-6
"""Probability that an iteration makes some replica look slow that is not, all replicas together."""

MOST_SIGMAS = 5.0
"""How many standard deviations one iteration can count for: two that are beyond are a change, one is not."""

RECOVERY_SIGMAS = 3.5
"""How many standard deviations faster one iteration is of a replica that nobody need wait for any more."""

LEAST_RECOVERY = 0.025
"""What that iteration is faster by at least; what is less is drift."""

PROVED_SIGMAS = 1.0
"""How many standard errors slower than the others one is that has been proved to have become slower."""

SURE_SIGMAS = 4.0
"""How many standard errors slower than an answer pays for one has to be that was slow from the first on."""

KEPT_SIGMAS = 2.0
"""How many standard errors slower one has to stay to be slow still."""

LEAST_SCATTER = 0.004
"""What an iteration is taken to vary by at least."""

NOISIER = 1.5
"""Above this many times the common scatter a replica has a scatter of its own."""

NOISIER_AT_ONCE = 2.2
"""Above this many times a single window is enough."""

PROFILE_COUNTS = 8
"""How many observations the profile's scatter is worth."""

NOISE_SIGMAS = 5.0
"""How many standard errors slack has to be above the noise."""

LEAST_SLACK = 0.01
"""Relative slack from which waiting slower pays."""

LEAST_SLACK_KEPT = 0.005
"""Relative slack below which it does no more."""

CONFIRMATIONS = 2
"""Slow iterations in a row after which a replica is believed to be slow."""

MOST_CONFIRMATIONS = 32
"""The same for one that was slow and recovered again and again."""

SHORT_SPELL = 12
"""A slow spell of fewer iterations was not worth its answer."""

CALM = 256
"""Iterations without a slow spell after which one short spell is forgiven."""

EXCESS = 0.0027
"""How much longer than T' an iteration may become on average because those who wait vary too."""

LEAST_MARGIN = 0.001
"""What those who wait stay below T' in any case."""

MAX_COST_PCT = 0.2
"""Time that answers may cost over the last 1 000 iterations, by default."""

BEHIND = 0.02
"""How much longer than planned an iteration lasts of a replica that asks for no lower clock ahead."""

LEAST_MOVE = 0.002
"""Relative change of a limit that is worth another plan."""

EXCESS_PACED = 0.0005
"""How much longer iterations may become on average because predictions of the longest replica err."""
