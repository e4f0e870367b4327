"""Groups, dev and few items of texts, against naive re-implementations on generated examples."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from trainables.datasets.text.examples import Example, RawExample
from trainables.datasets.text.splits import carved, grouped, limited

few = st.integers(0, 6)
RAW = st.lists(
    st.builds(
        lambda text, pair, label, keys: RawExample(f"text {text}", pair, label, tuple(keys)),
        few,
        st.none() | st.sampled_from("xyz"),
        st.integers(0, 2),
        st.lists(st.sampled_from(["a", "b", "c", "text 1"]), max_size=2),
    ),
    max_size=25,
)
EXAMPLES = st.lists(
    st.builds(lambda n, label, group: Example(f"{n}", None, label, group), st.integers(), few, few),
    max_size=40,
).map(lambda made: [Example(e.text, None, e.label, f"group {e.group}") for e in made])


def joined(examples: list[RawExample]) -> set[frozenset[int]]:
    """The oracle: sets of examples, two of them merged as long as any two share something.

    A key that all have is none: it would leave one set.
    """
    of_all = set.intersection(*(set(e.keys) for e in examples)) if examples else set()
    sets = [
        (frozenset([i]), {("text", e.text), *(("key", key) for key in e.keys if key not in of_all)})
        for i, e in enumerate(examples)
    ]
    while True:
        for a, b in itertools.combinations(range(len(sets)), 2):
            if sets[a][1] & sets[b][1]:
                merged = (sets[a][0] | sets[b][0], sets[a][1] | sets[b][1])
                sets = [merged, *(s for i, s in enumerate(sets) if i not in (a, b))]
                break
        else:
            return {members for members, _ in sets}


@given(RAW)
def test_groups_are_what_texts_and_keys_join(raw: list[RawExample]) -> None:
    # the pair is part of neither: numbering the examples through it lets the oracle find them
    numbered = [RawExample(e.text, str(i), e.label, e.keys) for i, e in enumerate(raw)]
    found: dict[str, set[int]] = {}
    for example in grouped(numbered):
        found.setdefault(example.group, set()).add(int(example.pair or ""))
    assert {frozenset(members) for members in found.values()} == joined(numbered)


@given(RAW, st.randoms(use_true_random=False))
def test_groups_do_not_depend_on_the_order_or_on_the_names_of_keys(raw, random) -> None:  # type: ignore[no-untyped-def]
    renamed = [RawExample(e.text, e.pair, e.label, tuple(f"{k}!" for k in e.keys)) for e in raw]
    random.shuffle(renamed)
    assert grouped(renamed) == grouped(raw)


@given(EXAMPLES, st.floats(0.01, 0.99))
def test_dev_is_the_smallest_run_of_whole_groups_that_reaches_its_share(
    examples: list[Example], share: float
) -> None:
    train, dev = carved(examples, share)
    assert Counter(train) + Counter(dev) == Counter(examples)
    assert train == [e for e in examples if e in set(train)]  # their order stays
    held_out = {e.group for e in dev}
    assert not held_out & {e.group for e in train}
    sizes = Counter(e.group for e in examples)
    label_of = {}
    for group in sizes:
        labels = Counter(e.label for e in examples if e.group == group)
        label_of[group] = min(labels, key=lambda label: (-labels[label], label))
    for label in set(label_of.values()):
        groups = [group for group in sizes if label_of[group] == label]
        total = sum(sizes[group] for group in groups)
        taken = [sizes[group] for group in groups if group in held_out]
        kept = [group for group in groups if group not in held_out]
        assert kept
        # enough, unless one group only was left; and not with a whole group less
        assert sum(taken) >= share * total - 1e-6 or len(kept) == 1
        assert not taken or sum(taken) - max(taken) < share * total


@given(EXAMPLES, st.floats(0.05, 0.45), st.floats(0.5, 0.95))
def test_a_larger_share_holds_out_the_groups_of_a_smaller_one(
    examples: list[Example], small: float, large: float
) -> None:
    groups = [{e.group for e in carved(examples, share)[1]} for share in (small, large)]
    assert groups[0] <= groups[1]


@given(EXAMPLES, st.integers(1, 45))
def test_few_items_are_dealt_to_the_labels_in_turn(examples: list[Example], most: int) -> None:
    numbered = [Example(f"{i}", None, e.label, e.group) for i, e in enumerate(examples)]
    queues = {label: [e for e in numbered if e.label == label] for label in range(7)}
    dealt: list[Example] = []
    while len(dealt) < min(most, len(numbered)):
        for label in range(7):
            if queues[label] and len(dealt) < most:
                dealt.append(queues[label].pop(0))
    assert limited(numbered, most) == sorted(dealt, key=lambda e: int(e.text))
    assert limited(numbered, None) == numbered


def test_dev_is_drawn_anew_from_names_not_from_sizes() -> None:
    """Large groups are as likely to be dev as small ones."""
    examples = [
        Example(f"{g} {i}", None, 0, f"g{g}") for g in range(400) for i in range(1 + 9 * (g % 2))
    ]
    dev = {e.group for e in carved(examples, 0.5)[1]}
    large = sum(int(group[1:]) % 2 for group in dev)
    assert abs(large / len(dev) - 0.5) < 0.12  # 200 draws: a sd of .035
