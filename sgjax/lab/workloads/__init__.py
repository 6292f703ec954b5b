"""The workloads that an experiment can name, one module each."""

from typing import Annotated

from pydantic import Field

from sgjax.lab.workloads.base import DataSource, LabEngine, Outcome, Ran, Task, Workload
from sgjax.lab.workloads.families import FamiliesWorkload
from sgjax.lab.workloads.mmlu import MmluWorkload
from sgjax.lab.workloads.trace import TraceWorkload

WorkloadConfig = Annotated[
    MmluWorkload | TraceWorkload | FamiliesWorkload, Field(discriminator="type")
]
"""What YAML can choose by `type`."""

__all__ = [
    "DataSource",
    "FamiliesWorkload",
    "LabEngine",
    "MmluWorkload",
    "Outcome",
    "Ran",
    "Task",
    "TraceWorkload",
    "Workload",
    "WorkloadConfig",
]
