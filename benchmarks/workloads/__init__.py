"""The workloads, one file each: the callbacks, and the same job for each peer."""

from workloads import log_lines, running_sum
from workloads.peers import Workload

__all__ = ["WORKLOADS", "Workload"]

WORKLOADS = {workload.letter: workload for workload in (running_sum.WORKLOAD, log_lines.WORKLOAD)}
