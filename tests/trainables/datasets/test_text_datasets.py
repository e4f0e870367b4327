"""One contract for every text data set, on files that the tests write in the published layouts."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from sweep.doctor.data import check_folder
from tests.support.data.text_folders import TEXT_LAYOUTS, TextLayout, Texts
from trainables.config.arm import DataConfig
from trainables.datasets.text.examples import Example, TextSplits
from trainables.datasets.text.load import load_text, remarks, resolve
from trainables.errors import BadData, UnknownName
from trainables.registry import built_in

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test reads anew, into its own folder."""
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(params=TEXT_LAYOUTS)
def layout(request: pytest.FixtureRequest) -> TextLayout:
    return TEXT_LAYOUTS[request.param]


def config(layout: TextLayout, folder: Path, **changes: object) -> DataConfig:
    return DataConfig(name=layout.data_set, folder=str(folder), **({"dev_fraction": 0.3} | changes))


def content(examples: Iterable[Example]) -> Counter[Texts]:
    return Counter((example.text, example.pair, example.label) for example in examples)


def labelled(rows: Sequence[Texts]) -> Counter[Texts]:
    return Counter(row for row in rows if row[2] is not None)


def sizes(splits: TextSplits) -> dict[str, int]:
    return {"train": len(splits.train), "dev": len(splits.dev), "test": len(splits.test)}


# --- what is read ---------------------------------------------------------------------------------


def test_examples_are_the_written_rows(layout: TextLayout, tmp_path: Path) -> None:
    splits = load_text(config(layout, layout.write(tmp_path / "data")))
    assert content(splits.train) + content(splits.dev) == labelled(layout.train)
    assert content(splits.test) == labelled(layout.test)
    assert splits.lengths == sizes(splits)
    assert splits.split("dev") == splits.dev


def test_rows_without_a_label_are_left_out_and_counted(layout: TextLayout, tmp_path: Path) -> None:
    splits_config = config(layout, layout.write(tmp_path / "data"))
    splits = load_text(splits_config)
    expected = [sum(row[2] is None for row in rows) for rows in (layout.train, layout.test)]
    assert [splits.skipped["train"], splits.skipped["test"]] == expected
    told = f"rows without label that are left out: {sum(expected)}"
    assert remarks(splits_config, "texts") == ((told,) if sum(expected) else ())


def test_a_split_of_the_users_own_that_is_not_read_is_said(tmp_path: Path) -> None:
    layout = TEXT_LAYOUTS["imdb as published"]
    root = layout.write(tmp_path / "aclImdb")
    assert remarks(config(layout, root), "texts") == ()
    (root / "val").mkdir()
    (said,) = remarks(config(layout, root), "texts")
    assert said == "val: not read; dev is a fraction of train, data.dev_fraction"
    assert said in check_folder(str(root)).finding


def test_labels_have_their_usual_numbers(layout: TextLayout, tmp_path: Path) -> None:
    splits = load_text(config(layout, layout.write(tmp_path / "data")))
    known = {"imdb": ("neg", "pos"), "mnli": ("entailment", "neutral", "contradiction")}
    assert splits.labels == known[layout.data_set]


# --- splits ---------------------------------------------------------------------------------------


def test_no_text_and_no_cluster_is_on_both_sides_of_dev(layout: TextLayout, tmp_path: Path) -> None:
    splits = load_text(config(layout, layout.write(tmp_path / "data")))
    for key in (lambda e: e.text, lambda e: e.group, lambda e: layout.clusters.get(e.text, e.text)):
        assert not set(map(key, splits.train)) & set(map(key, splits.dev))


def test_groups_are_the_texts_that_a_chain_of_clusters_joins(
    layout: TextLayout, tmp_path: Path
) -> None:
    splits = load_text(config(layout, layout.write(tmp_path / "data")))
    examples = splits.train + splits.dev
    by_cluster: dict[str, set[str]] = {}
    for example in examples:
        by_cluster.setdefault(layout.clusters.get(example.text, example.text), set()).add(
            example.group
        )
    assert {len(groups) for groups in by_cluster.values()} == {1}
    assert len({example.group for example in examples}) == len(by_cluster)


@pytest.mark.parametrize("dev_fraction", [0.1, 0.3, 0.5])
def test_dev_has_its_share_up_to_one_group_per_label(
    layout: TextLayout, tmp_path: Path, dev_fraction: float
) -> None:
    splits = load_text(config(layout, layout.write(tmp_path / "data"), dev_fraction=dev_fraction))
    examples = splits.train + splits.dev
    largest = max(Counter(example.group for example in examples).values())
    wanted = dev_fraction * len(examples)
    assert wanted - largest <= len(splits.dev) <= wanted + len(splits.labels) * largest
    assert splits.train


@pytest.mark.parametrize("max_items", [3, 7, 12])
def test_max_items_are_balanced_and_move_nothing_between_splits(
    layout: TextLayout, tmp_path: Path, max_items: int
) -> None:
    root = layout.write(tmp_path / "data")
    whole = load_text(config(layout, root))
    few = load_text(config(layout, root, max_items=max_items))
    assert few.fingerprint != whole.fingerprint
    for split in ("train", "dev", "test"):
        some, all_ = few.split(split), whole.split(split)
        assert len(some) == min(max_items, len(all_))
        assert not content(some) - content(all_)
        there = Counter(example.label for example in all_)
        assert Counter(example.label for example in some) == dealt(there, len(some))


def dealt(there: Counter[int], items: int) -> Counter[int]:
    """The oracle: one item of every label in turn, as long as there are some."""
    taken: Counter[int] = Counter()
    while sum(taken.values()) < items:
        for label in sorted(there):
            if taken[label] < there[label] and sum(taken.values()) < items:
                taken[label] += 1
    return taken


def test_more_items_contain_fewer(layout: TextLayout, tmp_path: Path) -> None:
    root = layout.write(tmp_path / "data")
    fewer, more = (load_text(config(layout, root, max_items=n)) for n in (4, 9))
    assert not content(fewer.train) - content(more.train)
    assert not content(fewer.test) - content(more.test)


# --- the test split stays closed ------------------------------------------------------------------

WATCHED_RUN = """
import sys
opened = []
sys.addaudithook(lambda event, args: event == "open" and opened.append(str(args[0])))
from trainables.config.arm import DataConfig
from trainables.datasets.text.load import load_text
splits = load_text(DataConfig.from_json({data!r}))
print(len(splits.train), len(splits.dev))
seen = [name for name in opened if name.startswith({root!r}) or "test.jsonl" in name]
print(len(seen))
splits.test
seen = [name for name in opened if name.startswith({root!r}) or "test.jsonl" in name]
print(len(seen) > 0)
"""


def test_once_resolved_no_file_of_the_test_split_is_opened_before_it_is_asked_for(
    layout: TextLayout, tmp_path: Path
) -> None:
    root = layout.write(tmp_path / "data")
    data = resolve(config(layout, root))
    code = WATCHED_RUN.format(data=data.to_json(), root=str(root))
    ran = subprocess.run(
        (sys.executable, "-c", code), cwd=REPOSITORY, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    counts, before, after = ran.stdout.splitlines()
    assert counts == f"{len(load_text(data).train)} {len(load_text(data).dev)}"
    assert (before, after) == ("0", "True")


def test_the_cache_holds_no_test_text_before_it_is_asked_for(
    layout: TextLayout, tmp_path: Path, own_cache: Path
) -> None:
    splits = load_text(config(layout, layout.write(tmp_path / "data")))
    test_text = layout.test[0][0].split("\u0085")[0].split("\u00e9")[0].encode()

    def holders() -> list[Path]:
        return [p for p in own_cache.rglob("*") if p.is_file() and test_text in p.read_bytes()]

    assert not holders()
    assert splits.test
    assert holders()


def test_a_test_split_that_changed_since_is_refused_when_it_is_opened(
    layout: TextLayout, tmp_path: Path
) -> None:
    root = layout.write(tmp_path / "data")
    data = resolve(config(layout, root))
    swap_cases(root, "test")
    assert load_text(data).train  # read before, and as it was
    with pytest.raises(BadData, match=r"test split of .* is not the one .* Restore them"):
        _ = load_text(data).test


def swap_cases(root: Path, split: str) -> None:
    """Other texts in files of the same name, size and time."""
    for path in filter(Path.is_file, root.rglob("*")):
        of_test = path.relative_to(root).parts[0] == "test" or "dev_matched" in path.name
        if of_test == (split == "test"):
            seen, held = path.stat(), path.read_bytes()
            path.write_bytes(held.replace(b"film", b"FILM").replace(b"ypoth", b"YPOTH"))
            os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


# --- the cache and the fingerprint ----------------------------------------------------------------


def test_it_is_read_once_per_machine(layout: TextLayout, tmp_path: Path) -> None:
    data = config(layout, layout.write(tmp_path / "data"))
    first = load_text(data)
    # Damage that keeps every name, size and time: whoever reads again sees it.
    for path in filter(Path.is_file, (tmp_path / "data").rglob("*")):
        seen = path.stat()
        path.write_bytes(bytes(seen.st_size))
        os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    second = load_text(data)
    assert second == first
    assert (second.train, second.dev) == (first.train, first.dev)


def test_it_is_found_in_its_own_folder_and_in_one_that_contains_it(
    layout: TextLayout, tmp_path: Path
) -> None:
    root = layout.write(tmp_path / "data" / layout.folder)
    inside, outside = (load_text(config(layout, place)) for place in (root, root.parent))
    assert inside == outside  # one cache entry


def test_the_fingerprint_knows_neither_place_nor_time(layout: TextLayout, tmp_path: Path) -> None:
    root = layout.write(tmp_path / "here")
    here = resolve(config(layout, root))
    shutil.copytree(root, tmp_path / "else" / "where", copy_function=shutil.copyfile)
    there = resolve(config(layout, tmp_path / "else" / "where"))
    assert here.fingerprint == there.fingerprint
    assert resolve(here) == here


def test_splits_do_not_depend_on_the_order_of_the_rows(layout: TextLayout, tmp_path: Path) -> None:
    written = load_text(config(layout, layout.write(tmp_path / "data")))
    turned = dataclasses.replace(layout, train=layout.train[::-1], test=layout.test[::-1])
    assert load_text(config(turned, turned.write(tmp_path / "turned"))).train == written.train
    assert load_text(config(turned, tmp_path / "turned")).fingerprint == written.fingerprint


def test_the_layouts_of_one_data_set_have_one_fingerprint(tmp_path: Path) -> None:
    """Where they know the same of their groups: IMDb's films are in the published layout alone."""
    prints = {
        name: resolve(config(layout, layout.write(tmp_path / name))).fingerprint
        for name, layout in TEXT_LAYOUTS.items()
    }
    assert len({found for name, found in prints.items() if name.startswith("mnli")}) == 1
    assert prints["imdb as published"] != prints["imdb without films"]


@pytest.mark.parametrize("split", ["train", "test"])
def test_changed_texts_and_labels_change_the_fingerprint(
    layout: TextLayout, tmp_path: Path, split: str
) -> None:
    before = resolve(config(layout, layout.write(tmp_path / "before")))
    first, second, label = getattr(layout, split)[0]
    changed = {
        "text": (first + "!" if second is None else first, second and second + "!", label),
        "label": (first, second, 1 - (label or 0)),
    }
    for name, row in changed.items():
        other = dataclasses.replace(layout, **{split: [row, *getattr(layout, split)[1:]]})
        root = other.write(tmp_path / name)
        assert resolve(config(layout, root)).fingerprint != before.fingerprint
        with pytest.raises(BadData, match=f"expected fingerprint {before.fingerprint}, got"):
            load_text(dataclasses.replace(before, folder=str(root)))


# --- what cannot be had ---------------------------------------------------------------------------


def test_a_data_set_without_a_folder_says_what_to_give(layout: TextLayout) -> None:
    with pytest.raises(BadData, match=r"needs data\.folder.* Give a folder"):
        load_text(DataConfig(name=layout.data_set))


def test_an_empty_folder_and_another_layout_are_told(layout: TextLayout, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadData, match=r"/empty is empty\. Give a folder"):
        load_text(config(layout, tmp_path / "empty"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("")
    with pytest.raises(BadData, match=r"\(it holds: notes\.txt\).* Give a folder"):
        load_text(config(layout, tmp_path / "other"))


def test_two_copies_are_refused(layout: TextLayout, tmp_path: Path) -> None:
    root = layout.write(tmp_path / "data")
    layout.write(root / layout.folder)
    with pytest.raises(BadData, match=r"more than once: .* Give the "):
        load_text(config(layout, root))


def test_one_group_is_too_few_to_carve_dev_from(layout: TextLayout, tmp_path: Path) -> None:
    one = [layout.train[0], layout.train[1]][: 2 if layout.data_set == "imdb" else 1]
    few = dataclasses.replace(layout, train=one)
    with pytest.raises(BadData, match=r"group\(s\) of training examples .* at least 2"):
        load_text(config(few, few.write(tmp_path / "data")))


def test_a_label_without_training_examples_is_told(layout: TextLayout, tmp_path: Path) -> None:
    root = layout.write(tmp_path / "data")
    if layout.data_set == "imdb":
        for path in (root / "train" / "pos").glob("*.txt"):
            path.unlink()
        message = r"train/pos: it holds no reviews"
    else:
        rows = [row for row in layout.train if row[2] != 2]
        dataclasses.replace(layout, train=rows).write(root)
        message = "no training examples of the label contradiction;"
    with pytest.raises(BadData, match=message):
        load_text(config(layout, root))


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UnknownName, match=r"'imbd'\. Known: hf:NAME, imdb, mnli\. Did you mean"):
        load_text(DataConfig(name="imbd"))


def test_every_data_set_is_under_this_contract() -> None:
    written = {layout.data_set for layout in TEXT_LAYOUTS.values()}
    assert written == set(built_in.TEXTS) - {"hf:NAME"}


def test_loading_texts_needs_neither_torch_nor_transformers() -> None:
    code = (
        "import sys, trainables.datasets.text.load, trainables.datasets.text.tokenized;"
        "print({'torch', 'transformers', 'datasets'} & set(sys.modules))"
    )
    ran = subprocess.run(
        (sys.executable, "-c", code), cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "set()"
