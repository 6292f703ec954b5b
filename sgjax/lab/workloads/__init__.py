"""The workloads that an experiment can name, one module each."""

from sgjax.lab.workloads.base import DataSource, LabEngine, Outcome, Task, Workload
from sgjax.lab.workloads.mmlu import MmluWorkload

WorkloadConfig = MmluWorkload
"""What YAML can choose by `type`; becomes a tagged union with the second workload."""

__all__ = [
    "DataSource",
    "LabEngine",
    "MmluWorkload",
    "Outcome",
    "Task",
    "Workload",
    "WorkloadConfig",
]
