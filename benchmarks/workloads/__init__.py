"""The workloads, one file each: the callbacks, and the same job for each peer."""

from workloads import distinct_keys, event_time, log_lines, running_sum, word_count
from workloads.peers import Workload

__all__ = ["WORKLOADS", "Workload"]

WORKLOADS = {
    workload.letter: workload
    for workload in (
        running_sum.WORKLOAD,
        log_lines.WORKLOAD,
        distinct_keys.WORKLOAD,
        word_count.WORKLOAD,
        event_time.WORKLOAD,
    )
}
