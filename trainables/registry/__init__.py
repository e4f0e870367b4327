"""Registry: models, tasks and data sets by name, built in or of other packages.

A specification says what is known of one before it is loaded. To add a built-in one, write its file
and name it in ``built_in.py``; another package names its own among its entry points
(docs/plugins.md). Nothing here imports torch.
"""

from trainables.registry.specs import DataSetSpec, ModelSpec, TaskSpec
from trainables.registry.task_facts import Metric, TaskFacts

__all__ = ["DataSetSpec", "Metric", "ModelSpec", "TaskFacts", "TaskSpec"]
