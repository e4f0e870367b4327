"""Launched spaces: a paper's comparisons run by name at a tiny size, and what all of them leave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from click.testing import CliRunner

from search_spaces.paper.comparison import Comparison
from sweep.cli.main import main
from sweep.results.sweep_view import SweepView, load_sweep
from sweep.study.pairs import Pair
from trainables.records.arm_record import ArmRecord
from trainables.records.objects import ObjectStore


def launch(
    space: str,
    values: Mapping[str, object],
    data: Path,
    storage: Path,
    only: tuple[str, ...] = (),
) -> SweepView:
    """``sweep run SPACE`` in this process with these values set; what the store holds then."""
    words = ["run", space, "--where", "inline", "--data", str(data), "--storage", str(storage)]
    words += [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    words += [word for pattern in only for word in ("--only", pattern)]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    return load_sweep(ObjectStore(storage), space)


def trained(
    view: SweepView, rows: Iterable[Comparison]
) -> Iterator[tuple[Comparison, Pair, tuple[ArmRecord, ArmRecord]]]:
    """Each comparison, its one pair and both arms, which are final after two steps."""
    settings, wanted = {s.setting.name: s for s in view.settings}, list(rows)
    assert settings.keys() == {row.setting for row in wanted}
    for row in wanted:
        shown = settings[row.setting].chosen.shown
        assert shown is not None
        (pair,) = shown.pairs
        assert pair.unconstrained is not None
        arms = (pair.constrained, pair.unconstrained)
        for record in arms:
            assert record.status == "finished", (row.setting, record.reason)
            assert record.config.data.name == row.data
            assert record.config.train_gamma == row.train_gamma
            assert [report.step for report in record.reports] == [2]
        assert pair.gains is not None
        yield row, pair, arms
