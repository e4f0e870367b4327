"""Pretrained ViT on three video data sets, the paper's training noise (Table 3).

Source: arXiv 2601.17257. The paper says "pretrained ViT" and 12 layers; that blocks of 768 = 16 x
16 x 3 are images makes it a ViT-B/16. Another checkpoint of that width: ``--set
model.checkpoint=NAME_OR_FOLDER``. It trains on a GPU, like the paper's; ``--set device=cpu`` is for
tiny checkpoints.
"""

from dataclasses import replace

from search_spaces import video_denoising_dust as dust
from search_spaces.catalog import longer, video_settings
from search_spaces.effects.descent import half_of, least_alpha
from search_spaces.paper.video import VIT
from search_spaces.space import Uniform

LEAST = half_of(0.15, 11)  # what a winner must ask for

SPACE = replace(
    dust.SPACE,
    name="video_denoising_vit",
    summary="ViT-B/16 on Avenue, ShanghaiTech, Ped2: 5 noise levels, Table 3; needs a GPU",
    base=dust.SPACE.base.with_fields(
        {
            "task": "frame_denoising",
            "data.frame_size": 224,
            "model.name": "vit",
            "model.layers": 12,
            "model.checkpoint": VIT,
            "batch_size": 16,  # frames
            "primal_lr": 1e-4,
            "device": "cuda",
            "constraint.alpha": 0.15,
            # A pretrained block's output is no image, so layer 1 starts near chance. From there
            # eleven factors of the paper's 0.71 ask for 2 % of chance; 0.85 for 17 %.
            "constraint.reference_loss": 1.0,
        }
    ),
    settings=video_settings("vit", {12: None}, least_descents={12: LEAST}),
    ranges={**dust.SPACE.ranges, "constraint.alpha": Uniform(least_alpha(LEAST, 11), 0.35)},
)

FULL = longer(SPACE, 10_000, eval_windows=96)
