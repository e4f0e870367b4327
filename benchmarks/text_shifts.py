"""Networks of texts under shifts that people meet: constraints against four other trainings.

    python -m benchmarks.text_shifts --only imdb_ut --store FOLDER --seeds 10 \
        --set model.checkpoint=FOLDER --data /data/aclImdb

Every arm of a setting is trained on every seed and scored on the test split: at its train gamma, on
unseen noise, under typing errors, dropped and swapped words, and elsewhere with the noise of
training: longer and shorter texts, other genres of MNLI. Nothing is chosen: the points were
declared before the first of these seeds. A store keeps what is trained, and the results are written
after each seed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import cast

import torch

from benchmarks.anytime.judged import decided
from benchmarks.confirmed.minilm_short import SPACE as MINILM
from benchmarks.leads.declared import DETACHED, PLAIN, WORDS, Fields, mixed, noise, supervision
from benchmarks.leads.trained import trained
from benchmarks.trained import put
from benchmarks.workers import spawned
from search_spaces.start_points import parse_point
from sweep.study.feasibility import judge
from trainables.build import build_model, build_task, parameter_dtype
from trainables.config.arm import ArmConfig
from trainables.config.test_conditions import family_of, severity_key, unseen_gammas
from trainables.evaluation.measuring import measure
from trainables.layer_losses import introduce
from trainables.plain import Json
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.tasks.texts import TextTask
from trainables.training import from_bytes

RESULTS = Path(__file__).parent / "results" / "anytime.json"  # beside the videos'
FIRST_SEED = 7000  # fresh: no search, pilot or audit has used one from here on
CONSTRAINED = ("Lagrangian", "detached")
TRAIN_GENRE = "telephone"
GENRES = ("fiction", "government", "slate", "travel")
SPLITS = ("multinli_1.0_train.jsonl", "multinli_1.0_dev_matched.jsonl")
SHIFTS: Fields = {
    "shifts": ["typos", "token_drop", "token_swap"],
    "eval_draws": 1,
    "dtype": "float32",  # bfloat16 takes ten times as long where a CPU has no instructions for it
}


@dataclass(frozen=True)
class Setting:
    """A network, its data, and where else it is scored."""

    says: str
    base: ArmConfig
    alpha: float
    omega: float  # of deep supervision
    elsewhere: Mapping[str, Fields]  # by name: what of the run's data is another
    is_by_genre: bool = False

    def arms(self) -> dict[str, Fields]:
        """Both forms of the constraint, then their rivals."""
        gamma = self.base.train_gamma
        return {
            "Lagrangian": {"constraint.alpha": self.alpha},
            "detached": {"constraint.alpha": self.alpha, **DETACHED},
            "plain": PLAIN,
            "plain, noise of 0 to twice": mixed(0.0, 2 * gamma),
            "plain, twice the noise": noise(2 * gamma),
            "deep supervision": supervision(self.omega),
        }


def _lengths(*tokens: int) -> dict[str, Fields]:
    return {f"{n} tokens": {"data.max_length": n} for n in tokens}


_MINILM = MINILM.base.with_fields({**SHIFTS, "train_gamma": 0.4, "model.layers": 6})
SETTINGS: Mapping[str, Setting] = {
    "imdb_ut": Setting(
        says="UT with 3 layers on MiniLM's words, the first 32 tokens of IMDb's reviews",
        base=WORDS.with_fields({**SHIFTS, "data.max_length": 32, "train_gamma": 0.4}),
        alpha=0.05,
        omega=0.1,
        elsewhere=_lengths(16, 128),
    ),
    "imdb_minilm": Setting(
        says="MiniLM on the first 32 tokens of IMDb's reviews",
        base=_MINILM,
        alpha=0.03,
        omega=0.1,
        elsewhere=_lengths(16, 64),
    ),
    "mnli_minilm": Setting(
        says=f"MiniLM on MNLI's genre {TRAIN_GENRE}, scored on it and on the others",
        base=_MINILM.with_fields({"data.name": "mnli", "data.max_length": 48}),
        alpha=0.01,
        omega=0.1,
        elsewhere={genre: {"data.folder": genre} for genre in GENRES},
        is_by_genre=True,
    ),
}


def by_genre(source: Path, folder: Path) -> None:
    """Write MNLI's files once for every genre: ``folder``/GENRE/mnli/."""
    for name in SPLITS:
        lines = (source / name).read_text("utf-8").splitlines()
        for genre in (TRAIN_GENRE, *GENRES):
            of_genre = [line for line in lines if json.loads(line)["genre"] == genre]
            place = folder / genre / "mnli" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("\n".join(of_genre) + "\n", encoding="utf-8")


def elsewhere(record: ArmRecord, setting: Setting, data: Path, runs: ArmStore) -> dict[str, float]:
    """The metric on each of the setting's other data, with the noise of training."""
    of = hashlib.sha256(repr((dict(setting.elsewhere), setting.is_by_genre)).encode()).hexdigest()
    stored = f"text_shifts/{record.signature}-{of[:8]}.json"
    if found := runs.objects.get_json(stored):
        return dict(found)
    config, weights = record.config, runs.weights(record.signature)
    assert weights is not None, f"no weights of {record.signature} are kept"
    torch.set_num_threads(config.threads)
    device, dtype = torch.device(config.device), parameter_dtype(config)
    own = build_task(config, device, dtype)
    model = build_model(config, own).to(device, dtype)
    model.load_state_dict(from_bytes(weights, device)["model"])
    introduce(model, own)
    scores: dict[str, float] = {}
    for name, fields in setting.elsewhere.items():
        places = {"data.folder": str(data / name)} if setting.is_by_genre else {}
        other = config.with_fields({**fields, **places})
        task = build_task(other, device, dtype)
        introduce(model, task)  # by which a gamma is of these texts' embeddings
        gamma = (
            config.train_gamma
            * cast(TextTask, own).embedding_std
            / cast(TextTask, task).embedding_std
        )
        scores[name] = measure(model, task, "test", gamma, 1).metrics(task)[-1]
    runs.objects.put_json(stored, scores)
    return scores


def conditions(record: ArmRecord, of_others: Mapping[str, float]) -> dict[str, float]:
    """The metric by test condition: the train gamma, unseen noise, shifts, and elsewhere."""
    config, found = record.config, record.evaluation
    assert found is not None
    unseen = [found.scores[f"{gamma:.2f}"] for gamma in unseen_gammas(config)]
    return {
        "train gamma": found.scores[f"{config.train_gamma:.2f}"],
        "unseen noise": fmean(unseen),
        **{
            f"{shift} {severity:g}": found.shift_scores[shift][severity_key(severity)]
            for shift in config.shifts
            for severity in family_of(shift).severities[1:]  # medium and strong
        },
        **of_others,
    }


def scored(setting: Setting, places: Fields, data: Path, seed: int, store: Path) -> Json:
    """What every arm of a seed came to."""
    runs = ArmStore(ObjectStore(store))
    found: dict[str, Json] = {}
    folder = data / TRAIN_GENRE if setting.is_by_genre else data
    base = setting.base.with_fields({"data.folder": str(folder), **places})
    for name, fields in setting.arms().items():
        record = trained(base.with_fields({**fields, "seed": seed, "measured_on": "test"}), runs)
        constraint = base.with_fields(dict(setting.arms()["Lagrangian"])).constraint
        assert record.evaluation is not None, record.reason
        assert constraint is not None
        judgement = judge([record], constraint)
        found[name] = {
            "conditions": conditions(record, elsewhere(record, setting, data, runs)),
            "losses": record.evaluation.held_out_losses(),
            "feasible": judgement is not None and judgement.feasible,
            "units": len(record.evaluation.dev_units),
        }
        print(f"seed {seed} {name}: {found[name]['conditions']}", file=sys.stderr, flush=True)
    return found


def judged(setting: Setting, by_seed: Mapping[int, Json]) -> Json:
    """Every form against every rival by condition: gains, with Holm over a rival's tests.

    Above 0 the constrained network is more accurate.
    """
    names = list(next(iter(by_seed.values()))["plain"]["conditions"])
    tested = {}
    for rival in [arm for arm in setting.arms() if arm not in CONSTRAINED]:
        gains = {
            (form, condition): [
                arms[form]["conditions"][condition] - arms[rival]["conditions"][condition]
                for arms in by_seed.values()
            ]
            for form in CONSTRAINED
            for condition in names
        }
        tested[rival] = [
            {"form": form, "condition": condition, **of}
            for (form, condition), of in decided(gains).items()
        ]
    return {
        "says": setting.says,
        "base": setting.base.changed(),
        "arms": {name: dict(fields) for name, fields in setting.arms().items()},
        "tested": tested,
        "by_seed": by_seed,
    }


def main() -> None:
    """Train what the store lacks, seed by seed, and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=SETTINGS, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="aclImdb, or MNLI's two files")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2, help="seeds that train side by side")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    options = parser.parse_args()
    setting, data = SETTINGS[options.only], options.data
    if setting.is_by_genre:
        by_genre(data, data := options.store / "genres")
    places = {name: value for one in options.set for name, value in parse_point(one).items()}
    seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
    by_seed: dict[int, Json] = {}
    with spawned(options.workers) as pool:
        running = {
            pool.submit(scored, setting, places, data, seed, options.store): seed for seed in seeds
        }
        for done in as_completed(running):
            by_seed[running[done]] = done.result()
            found = judged(setting, dict(sorted(by_seed.items())))
            put(options.out, options.only, found, decimals=6)


if __name__ == "__main__":
    main()
