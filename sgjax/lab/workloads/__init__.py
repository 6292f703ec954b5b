"""The workloads that an experiment can name, one module each."""

from typing import Annotated

from pydantic import Field

from sgjax.lab.workloads.base import DataSource, LabEngine, Outcome, Ran, Task, Workload
from sgjax.lab.workloads.distortion import DistortionWorkload
from sgjax.lab.workloads.dspy_rag import DspyRagWorkload
from sgjax.lab.workloads.extraction import ExtractionWorkload
from sgjax.lab.workloads.families import FamiliesWorkload
from sgjax.lab.workloads.forms import FormsWorkload
from sgjax.lab.workloads.generative_agents import GenerativeAgentsWorkload
from sgjax.lab.workloads.hellaswag import HellaswagWorkload
from sgjax.lab.workloads.json_decoding import JsonDecodingWorkload
from sgjax.lab.workloads.json_schemas import JsonSchemasWorkload
from sgjax.lab.workloads.lines_of_code import LinesOfCodeWorkload
from sgjax.lab.workloads.llm_judge import LlmJudgeWorkload
from sgjax.lab.workloads.mmlu import MmluWorkload
from sgjax.lab.workloads.multi_turn_chat import MultiTurnChatWorkload
from sgjax.lab.workloads.nested import NestedWorkload
from sgjax.lab.workloads.python_file import PythonWorkload
from sgjax.lab.workloads.react import ReactWorkload
from sgjax.lab.workloads.self_consistency import SelfConsistencyWorkload
from sgjax.lab.workloads.sharegpt import SharegptWorkload
from sgjax.lab.workloads.skeleton_of_thought import SkeletonOfThoughtWorkload
from sgjax.lab.workloads.trace import TraceWorkload
from sgjax.lab.workloads.tree_of_thought import TreeOfThoughtWorkload

WorkloadConfig = Annotated[
    DistortionWorkload
    | DspyRagWorkload
    | ExtractionWorkload
    | FamiliesWorkload
    | FormsWorkload
    | GenerativeAgentsWorkload
    | HellaswagWorkload
    | JsonDecodingWorkload
    | JsonSchemasWorkload
    | LinesOfCodeWorkload
    | LlmJudgeWorkload
    | MmluWorkload
    | MultiTurnChatWorkload
    | NestedWorkload
    | PythonWorkload
    | ReactWorkload
    | SelfConsistencyWorkload
    | SharegptWorkload
    | SkeletonOfThoughtWorkload
    | TraceWorkload
    | TreeOfThoughtWorkload,
    Field(discriminator="type"),
]
"""What YAML can choose by `type`."""

__all__ = [
    "DataSource",
    "DistortionWorkload",
    "DspyRagWorkload",
    "ExtractionWorkload",
    "FamiliesWorkload",
    "FormsWorkload",
    "GenerativeAgentsWorkload",
    "HellaswagWorkload",
    "JsonDecodingWorkload",
    "JsonSchemasWorkload",
    "LabEngine",
    "LinesOfCodeWorkload",
    "LlmJudgeWorkload",
    "MmluWorkload",
    "MultiTurnChatWorkload",
    "NestedWorkload",
    "Outcome",
    "PythonWorkload",
    "Ran",
    "ReactWorkload",
    "SelfConsistencyWorkload",
    "SharegptWorkload",
    "SkeletonOfThoughtWorkload",
    "Task",
    "TraceWorkload",
    "TreeOfThoughtWorkload",
    "Workload",
    "WorkloadConfig",
]
