"""Pretrained ViT on three video data sets, the paper's training noise (Table 3).

Source: arXiv 2601.17257. The paper says "pretrained ViT" and 12 layers; that blocks of 768 = 16 x
16 x 3 are images makes it a ViT-B/16. Another checkpoint of that width: ``--set
model.checkpoint=NAME_OR_FOLDER``. It trains on a GPU, like the paper's; ``--set device=cpu`` is for
tiny checkpoints.
"""

from search_spaces.catalog import half_of, longer, video_settings
from search_spaces.space import LogDecay, LogUniform, SearchSpace, Uniform
from trainables.config import ArmConfig, ConstraintConfig, DataConfig, ModelConfig

CHECKPOINT = "google/vit-base-patch16-224"

SPACE = SearchSpace(
    name="video_denoising_vit",
    summary="ViT-B/16 on Avenue, ShanghaiTech, Ped2: 5 noise levels, Table 3; needs a GPU",
    base=ArmConfig(
        task="frame_denoising",
        data=DataConfig(name="ucsd_ped2", frame_size=224),
        model=ModelConfig(name="vit", layers=12, checkpoint=CHECKPOINT),
        steps=2000,
        batch_size=16,  # frames
        primal_lr=1e-4,
        report_every=200,
        device="cuda",
        constraint=ConstraintConfig(
            alpha=0.15,
            # A pretrained block's output is no image, so layer 1 starts near chance. From there
            # eleven factors of the paper's 0.71 ask for 2 % of chance; 0.85 for 17 %.
            reference_loss=1.0,
            reference_unit="constant",
            dual_lr=1e-2,
            resilience=0.05,
        ),
    ),
    settings=video_settings("vit", {12: None}, least_descents={12: half_of(0.15, 11)}),
    ranges={
        "constraint.alpha": Uniform(0.03, 0.35),  # fraction of its loss each layer must remove
        "constraint.dual_lr": LogUniform(1e-3, 1e-1),  # of the clipped relative signal
        "constraint.resilience": LogDecay(0.1, 10.0),  # by what it takes off a multiplier
    },
    n_proposals=8,
    search_seeds=(0, 1),
)

FULL = longer(SPACE, 10_000, eval_windows=96)
