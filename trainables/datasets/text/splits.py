"""Splits of texts: groups that stay whole, the dev split, small samples. Pure.

Nothing here depends on the order or the names of files: orders are those of hashes of content, so
every layout of a data set gives the same splits.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from trainables.datasets.by_split import rounded_up
from trainables.datasets.text.examples import Example, RawExample, text_digest


def grouped(examples: Iterable[RawExample]) -> list[Example]:
    """The examples with their groups, in the order of their content.

    Examples that share a text (the first one of a pair) or a key are of one group, and so are those
    that a chain of such examples joins. A key that all of them carry joins none: a column of
    prompts that holds one value, say, or reviews of one film. A group is called by the hash of one
    of its texts, so its name does not depend on keys.
    """
    held = _without_shared_keys(list(examples))
    parents: dict[str, str] = {}
    texts = [text_digest(example.text)[:16] for example in held]
    for example, text in zip(held, texts, strict=True):
        root = _root(parents, text)
        for key in example.keys:
            parents[_root(parents, f"key {key}")] = root
    names: dict[str, str] = {}
    for text in texts:
        root = _root(parents, text)
        names[root] = min(text, names.get(root, text))
    made = [
        Example(e.text, e.pair, e.label, names[_root(parents, text)])
        for e, text in zip(held, texts, strict=True)
    ]
    return in_order(made)


def _without_shared_keys(examples: Sequence[RawExample]) -> Sequence[RawExample]:
    shared = set.intersection(*(set(example.keys) for example in examples)) if examples else set()
    if not shared:
        return examples
    return [
        dataclasses.replace(example, keys=tuple(key for key in example.keys if key not in shared))
        for example in examples
    ]


def in_order(examples: Iterable[Example]) -> list[Example]:
    """The examples in the order of a hash of their content."""
    return sorted(examples, key=lambda e: (text_digest(e.text, e.pair), e.label))


def _root(parents: dict[str, str], node: str) -> str:
    """The representative of a node's set; paths are halved on the way."""
    parents.setdefault(node, node)
    while parents[node] != node:
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


def carved(
    examples: Sequence[Example], dev_fraction: float, seed: int | None = None
) -> tuple[list[Example], list[Example]]:
    """Training and dev examples: dev is ``dev_fraction`` of them, rounded up to whole groups.

    Groups are drawn by a hash of their name, and of the ``seed`` where there is one, for each label
    apart (a group counts for the label that most of its examples have), so that dev has the labels
    in the proportions of all. Of every label that has groups, one group at least stays in train;
    where all labels have one group only, dev is empty.
    """
    members: dict[str, list[int]] = defaultdict(list)
    for example in examples:
        members[example.group].append(example.label)
    groups_of: dict[int, list[str]] = defaultdict(list)
    for group, labels in members.items():
        counts = Counter(labels)
        groups_of[min(counts, key=lambda label: (-counts[label], label))].append(group)
    held_out: set[str] = set()
    drawn_by = "dev" if seed is None else f"dev {seed}"
    for groups in groups_of.values():
        groups.sort(key=lambda group: hashlib.sha256(f"{drawn_by} {group}".encode()).digest())
        sizes = [len(members[group]) for group in groups]
        wanted = rounded_up(sum(sizes) * dev_fraction)
        before = itertools.accumulate(sizes, initial=0)  # examples in the groups before this one
        held_out.update(g for g, taken in zip(groups[:-1], before, strict=False) if taken < wanted)
    return (
        [example for example in examples if example.group not in held_out],
        [example for example in examples if example.group in held_out],
    )


def limited(examples: Sequence[Example], max_items: int | None) -> list[Example]:
    """At most ``max_items`` of the examples, as many of every label as can be, in their order.

    Fewer items are a subset of more.
    """
    if max_items is None or len(examples) <= max_items:
        return list(examples)
    seen: Counter[int] = Counter()
    ranks = []  # the how-manieth of its label an example is, its label, its place
    for place, example in enumerate(examples):
        ranks.append((seen[example.label], example.label, place))
        seen[example.label] += 1
    return [examples[place] for place in sorted(place for *_, place in sorted(ranks)[:max_items])]
