"""Llama 3.1 8B on Alpaca: the paper's Table 5, one setting.

Source: arXiv 2601.17257, section 6 and Table 5: 32 layers, train gamma 0.25, 1 - alpha = 0.95, f0 =
12.0 (just above chance, ln 128,256 = 11.76), AdamW, 2 epochs of batches of 4. Three more values
(1.5, 6 and 8) lost their powers of ten and their columns: dual_lr and the resilience are searched,
the weights' learning rate is 1e-5. Weights, gradients and Adam's moments are in float32, 122 GB
before activations. On one GPU of 80 GB: ``--set model.lora_rank=16 --set model.recompute=true --set
primal_lr=1e-4`` (docs/text.md). A smaller decoder: ``--set model.checkpoint=NAME_OR_FOLDER``.
"""

from search_spaces.catalog import setting
from search_spaces.effects.descent import half_of, least_alpha, twice
from search_spaces.space import LogDecay, LogUniform, SearchSpace, Uniform
from trainables.config import ArmConfig, ConstraintConfig, DataConfig, ModelConfig

LAYERS, ALPHA = 32, 0.05
LEAST = half_of(ALPHA, LAYERS)  # what a winner must ask for

SPACE = SearchSpace(
    name="instruction_tuning_llama",
    summary="Llama 3.1 8B on Alpaca, Table 5; all weights need more than 80 GB",
    base=ArmConfig(
        task="instruction_tuning",
        data=DataConfig(name="alpaca", dev_fraction=0.02, max_length=1024),
        model=ModelConfig(name="decoder", layers=0, checkpoint="meta-llama/Llama-3.1-8B"),
        train_gamma=0.25,
        steps=23_000,  # 2 epochs of the 45,900 instructions that are neither dev nor test
        batch_size=4,
        primal_lr=1e-5,
        weight_decay=0.01,
        warmup_fraction=0.03,
        decay_fraction=0.97,
        report_every=1000,
        eval_windows=300,
        eval_draws=2,
        dtype="bfloat16",
        device="cuda",
        constraint=ConstraintConfig(
            alpha=ALPHA,
            reference="virtual_layer0",
            reference_loss=12.0,
            reference_unit="absolute",
            dual_signal="violation",
            signal_clip=1.0,
            dual_lr=1e-3,
            resilience=1e-3,
        ),
    ),
    settings=(
        setting(
            "alpaca", "decoder", None, 0.25, called="llama", alpha=ALPHA,
            least_descent=LEAST,
            ranges={"constraint.alpha": Uniform(least_alpha(LEAST, LAYERS), twice(ALPHA))},
        ),
    ),
    ranges={
        "constraint.alpha": Uniform(0.01, 0.1),  # fraction of its loss each layer must remove
        "constraint.dual_lr": LogUniform(1e-4, 1e-2),  # of the violation in units of chance
        "constraint.resilience": LogDecay(0.05, 10.0),  # by what it takes off a multiplier
    },
    n_proposals=5,
    search_seeds=(0,),
)  # fmt: skip
