"""Export for a paper: tables, configurations that re-run exactly, a manifest.

    tables/{results,layers,anytime,shifts,hyperparameters,frontier}.{csv,md,tex}
    tables/paper_{results,hyperparameters}.{csv,md,tex}     as the paper arranges them
    tables/tidy.csv             every number of the pairs shown, one a row, each seed alone
    tables/proposals.csv        every proposal on every seed
    answers.md                  what both arms of the pairs shown wrote, side by side
    answers/<setting>/          the same in AlpacaEval's fields, a file an arm and gamma
    configs/<setting>.json      the winner: a config per search seed, and what each arm came to
    manifest.json               provenance, and every file with its checksum

A function of the store alone: the same store exports the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from search_spaces.catalog import CONFIGURATION
from search_spaces.space import SearchSpace
from sweep.render.csv import to_csv
from sweep.render.latex import to_latex
from sweep.render.markdown import to_markdown
from sweep.render.table import Table
from sweep.results import provenance
from sweep.results.best import best_summaries
from sweep.results.export_folder import (
    MANIFEST,
    ExportManifest,
    earlier_export,
    text_of,
    write_files,
)
from sweep.results.facts import read_facts, shown_facts
from sweep.results.summary import SettingSummary
from sweep.results.sweep_view import SettingView, SweepView
from sweep.results.tables.answers import answer_files
from sweep.results.tables.anytime import anytime_table
from sweep.results.tables.columns import without_idle
from sweep.results.tables.frontier import frontier_table
from sweep.results.tables.hyperparameters import hyperparameters_table
from sweep.results.tables.layers import layers_table
from sweep.results.tables.paper_hyperparameters import paper_hyperparameters_table, trained_pairs
from sweep.results.tables.paper_results import paper_results_table
from sweep.results.tables.results import results_table
from sweep.results.tables.shifts import shifts_table
from sweep.study.pairs import ReadRecord
from sweep.study.selection import is_selected
from trainables.config.arm import TRAINING_VERSION
from trainables.plain import Json
from trainables.records.arm_record import ArmRecord


def export(
    view: SweepView,
    run_ids: Mapping[str, str],
    out: Path,
    *,
    read: ReadRecord,
    everything: bool = False,
    beside_paper: bool = False,
    instead: Mapping[str, str] | None = None,
    replace: bool = False,
) -> list[str]:
    """Write the export of a sweep below ``out`` and return the names of its files.

    Args:
        view: the sweep.
        run_ids: MLflow run by signature, as far as they are known.
        out: a folder that does not exist, is empty, or holds an earlier export of this sweep.
        read: how the record of a signature is read.
        everything: also configurations of the closest pairs where there is no winner.
        beside_paper: with the published numbers, in the tables that are arranged as the paper's.
        instead: files by name, in the place of tables and configurations: of a confirmation.
        replace: an earlier export goes also where it holds more than this one.
    """
    name = view.definition.name
    earlier_export(out, name)  # a foreign folder is refused before the work
    content = instead
    if content is None:
        tables = sweep_tables(view.definition.space, best_summaries(view, run_ids), beside_paper)
        content = _contents(view, tables, read, everything=everything)
    sums = {file: hashlib.sha256(text.encode()).hexdigest() for file, text in content.items()}
    manifest = ExportManifest(**provenance.manifest(view, run_ids).keywords(), files=sums)
    files = {**content, MANIFEST: text_of(manifest.to_json())}
    return write_files(out, name, files, replace=replace)


def configuration(view: SweepView, setting: SettingView) -> dict[str, Json]:
    """A configuration from which ``sweep run`` trains the setting's pairs again and compares."""
    shown = setting.chosen.shown
    assert shown is not None  # asked for only where there is a pair
    space = view.definition.space
    baseline = space.run(setting.setting, {}, seed=space.search_seeds[0])
    primal = [name for name in shown.point if not name.startswith("constraint.")]
    records = [record for pair in shown.pairs for record in pair.arms]
    return {
        "kind": CONFIGURATION,
        "format": 1,
        "sweep": view.definition.name,
        "space": space.name,
        "setting": setting.setting.name,
        "proposal": shown.number,
        "winner": setting.chosen.winner is not None,
        "why": setting.chosen.why or None,
        "tolerance": space.tolerance,
        "selection_biased": is_selected(space, setting.setting),
        # what the unconstrained arm has where the point sets fields of the primal run
        "baseline": {name: baseline.value_of(name) for name in primal},
        "training_version": TRAINING_VERSION,
        "environments": provenance.distinct_environments(records),
        "runs": {
            str(pair.constrained.config.seed): {
                "config": pair.constrained.config.to_json(),
                "constrained": expected(pair.constrained),
                "unconstrained": None
                if pair.unconstrained is None
                else expected(pair.unconstrained),
            }
            for pair in shown.pairs
        },
    }


def expected(record: ArmRecord) -> dict[str, Json]:
    """The results of an arm, with which it is compared when it is trained again."""
    plain = record.to_json()
    return {name: plain[name] for name in ("signature", "status", "evaluation", "environment")}


def sweep_tables(
    space: SearchSpace, summaries: Sequence[SettingSummary], beside_paper: bool = False
) -> list[Table]:
    """The tables of a search that have a short form."""
    return [
        results_table(space, summaries),
        layers_table(space, summaries),
        shifts_table(space, summaries),
        hyperparameters_table(space, summaries),
        frontier_table(summaries),
        paper_results_table(space, summaries, beside_paper=beside_paper),
        paper_hyperparameters_table(
            space, trained_pairs(space, summaries), beside_paper=beside_paper
        ),
    ]


def _contents(
    view: SweepView, tables: Sequence[Table], read: ReadRecord, *, everything: bool
) -> dict[str, str]:
    """Every file by name but the manifest."""
    space = view.definition.space
    files: dict[str, str] = {}
    for table in (*tables, anytime_table(view)):
        files |= table_files(table, view.definition.name)
    tidy = [fact._asdict() for one in view.settings for fact in shown_facts(one)]
    proposals = without_idle(space, read_facts(view, read).proposals)
    for name, rows in (("tidy", tidy), ("proposals", proposals)):
        files[f"tables/{name}.csv"] = to_csv(Table(name, "", rows, [], []))
    for setting in view.settings:
        wanted = setting.chosen.winner or (everything and setting.chosen.shown)
        if wanted:
            plain = configuration(view, setting)
            files[f"configs/{setting.setting.name}.json"] = text_of(plain)
    return files | answer_files(view)


def table_files(table: Table, sweep: str) -> dict[str, str]:
    """A table in every format, by the names of its files."""
    return {
        f"tables/{table.name}.csv": to_csv(table),
        f"tables/{table.name}.md": to_markdown(table),
        f"tables/{table.name}.tex": to_latex(table, sweep),
    }
