"""Changes of what some arms train to, which their signatures name.

All other arms keep the signatures that they had, as a rise of ``TRAINING_VERSION`` would not let
them. No change may ever be taken out (docs/decisions/0003).
"""

from __future__ import annotations

# The noise that the unchanged input's loss is stated at where training has none. A constant: what
# an arm is scored at must not move what it is trained for.
IDENTITY_GAMMA = 0.05

# Pixels a side, at most, of patches on which UT's transform is one matrix, and a CPU folds it into
# the maps.
FOLDED_PATCH = 8

# What such arms did before, by the name that their signatures have now.
MENDED = {
    "identity_gamma": "at train_gamma 0 the noise of the loss was the least test gamma",
    "split_of_all_items": "split_by_seed drew dev from max_items, not from all items",
    "stack_on_gpu": "a GPU trained a small network alone, not in a stack of 8 rows, and evaluated "
    "8 windows at once, not 4",
    "folded_ut": f"a CPU trained UT on patches of at most {FOLDED_PATCH} x {FOLDED_PATCH} pixels "
    "without folding its transform into its maps",
}
