"""`sweep spaces`: every built-in space, what one would cost, and what the paper says of it."""

from __future__ import annotations

import json

from search_spaces import catalog
from sweep.statistics.design import Design
from sweep.statistics.power import power
from tests.support.command_line import refused, sweep


def test_spaces_lists_every_built_in_space_and_shows_one() -> None:
    listed = sweep("spaces").stdout
    assert all(name in listed for name in catalog.space_names())
    shown = sweep("spaces", "quickstart").stdout
    assert "constraint.alpha" in shown
    assert all(s.name in shown for s in catalog.find("quickstart").space.settings)
    plain = json.loads(sweep("spaces", "quickstart", "--json").stdout)
    assert plain["arms"] == catalog.arm_count(catalog.find("quickstart").space)
    assert {entry["name"] for entry in json.loads(sweep("spaces", "--json").stdout)} == set(
        catalog.space_names()
    )


def test_the_verb_says_what_the_json_says() -> None:
    words = ["spaces", "quickstart", "--set", "steps=40", "--only", "*-detached"]
    plain = json.loads(sweep(*words, "--json").stdout)
    cost = plain["estimate"]
    assert plain["arms"] == cost["arms"] == 5
    assert plain["unconstrained_arms"] == 1
    assert cost["within_a_factor_of"] == 2
    assert cost["seconds_per_arm"].keys() == {"photographs-ut-L5-g0.15-detached"}
    assert plain["first_proposals"]["photographs-ut-L5-g0.15-detached"]["constraint.alpha"] == 0.15
    shown = sweep(*words).stdout
    assert "4 constrained and 1 unconstrained arms" in " ".join(shown.split())
    assert "Estimate, within a factor of 2" in shown
    assert "timed here" in shown
    told = "A gain of a family as large as its standard deviation between seeds would be found"
    designs = {seeds: Design.planned({"photographs": ("g0.15",)}, seeds) for seeds in (10, 20)}
    ten, twenty = (f"{100 * power(of, 1.0, n, 1):.0f} %" for n, of in designs.items())
    assert f"{told} never with 5, in {ten} with 10 and in {twenty} with 20 seeds." in " ".join(
        shown.split()
    )


def test_a_network_that_cannot_be_built_leaves_the_space_and_says_why() -> None:
    words = ["spaces", "video_denoising_vit", "--set", "data.frame_size=40", "--set"]
    words += ["data.patch_size=20", "--only", "ucsd_ped2-*-g0.15", "--gpu", "h100"]
    shown = " ".join(sweep(*words).stdout.split())
    assert "1 setting" in shown
    assert "No estimate: model 'vit' does not run" in shown
    assert "patch size 16 of checkpoint 'google/vit-base-patch16-224', got 40" in shown
    (reason,) = json.loads(sweep(*words, "--json").stdout)["estimate"].values()
    assert "got 40" in reason


def test_the_verb_shows_the_papers_numbers_and_their_doubts() -> None:
    words = ["spaces", "video_denoising_dust", "--gpu", "rtx3090", "--json"]
    plain = json.loads(sweep(*words).stdout)
    row = plain["published"]["ucsd_ped2-dust-L5-g0.11"]
    assert row["mean_rmse"] == {"constrained": 105.767, "unconstrained": 20.965}
    assert any("failed run" in doubt for doubt in row["doubts"])
    assert plain["estimate"]["device"] == "rtx3090"
    assert (
        "a kernel every 30 us, in stacks every 2.3, as with an H100"
        in plain["estimate"]["assumption"]
    )


def test_the_verb_names_the_variant_and_how_it_departs_from_the_paper() -> None:
    words = ["spaces", "video_denoising_ut", "--only", "ucsd_ped2-ut-L3-g0.15", "--gpu", "h100"]
    shown = " ".join(sweep(*words).stdout.split())
    assert "model: ut (distance)" in shown
    assert "not the paper's forward" in shown
    literal = " ".join(sweep(*words, "--set", "model.variant=literal").stdout.split())
    assert "model: ut (literal)" in literal
    assert "not the paper's forward" not in literal


def test_the_list_of_spaces_takes_no_option_of_one_space() -> None:
    assert "give NAME" in refused("spaces", "--full")


def test_a_gpu_is_known_by_what_it_calls_itself_and_one_that_is_too_small_is_told() -> None:
    words = ["spaces", "instruction_tuning_llama", "--gpu"]
    for called, gpu in (("NVIDIA H100 80GB HBM3", "h100"), ("H200", "h200")):
        assert json.loads(sweep(*words, called, "--json").stdout)["estimate"]["device"] == gpu
    shown = " ".join(sweep(*words, "rtx3090").stdout.split())
    assert "! rtx3090 has 24 GB, too few for such an arm: choose a larger GPU, or" in shown
    assert "too few" not in sweep("spaces", "quickstart", "--gpu", "rtx3090").stdout
    assert "unknown GPU 'nvidia l40s'" in refused(*words, "NVIDIA L40S")
