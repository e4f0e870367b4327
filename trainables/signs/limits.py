"""Limits beyond which a run shows a sign that it goes wrong, all in one table."""

# When a sign counts.
SETTLED = 0.25  # fraction of the steps after which a run is expected to have found its feet
HALFWAY = 0.5  # fraction of the steps after the warm-up from which multipliers may end a run
IMPROVING = 0.95  # what is wrong has fallen below this fraction of itself since the last report
# The output and the training loss.
ABOUT_EQUAL = 1.05  # a loss over the input's up to which a network has only not learnt yet
FLAT = 0.01  # of the first report's training loss: a loss that stays this near has not moved
GROWN = 10.0  # a hidden norm over its first report's, while the layer's loss has fallen
SLOW = 0.5  # of the median of earlier steps per second
LEAST_SECONDS = 10.0  # of training, in a report interval whose speed says something
# Multipliers, in training.
WOUND_UP = 0.8  # of the farthest a multiplier could have come: it only ever rose
UNBOUNDED_WIND_UP = 20.0  # the farthest where nothing bounds it
PAID_TO_RISE = 3.0  # an early layer's loss over the input's, while its weight is negative
STALE = 0.9  # a multiplier that keeps this fraction of itself over a whole report interval
WELL_MET = -0.25  # mean violation, over the loss allowed, below which a multiplier should fall fast
# Multipliers, when training has ended.
LEAST_REPORTS = 6  # fewer tell no oscillation from a run that is on its way
LAST = 3  # reports that stand for the end of a run
SIGN_CHANGES = 3  # that make an oscillation
STEADY = 0.8  # of the largest swing before, which an oscillation that dies out falls below
MUCH = 0.2  # of the loss: a product of multipliers and violations that is far from 0
