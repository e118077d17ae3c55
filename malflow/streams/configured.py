"""Build functions with configured operators, such as the URLs that they connect to, and checks of the names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType

from malflow.connectors.by_name import Replacement
from malflow.errors import ConfigError, ConfigFault, GraphError
from malflow.failures import OnError, Retry
from malflow.nodes import SinkNode, SourceNode
from malflow.streams.stream import StreamProvider

__all__ = ["ConfiguredBuild"]


class ConfiguredBuild:
    """A build function with the configuration of its operators, for any runtime.

    Args:
        build_dataflow: builds the dataflow.
        replacements: the URLs and options of the sources and sinks that it makes by `connect`, by operator. The
            settings of an outer build function win.
        check: returns the faults of the configuration; called with the names of all operators once they are built, and
            the names of sources and sinks.
        policies: the policies for failed records, by operator; they precede the code's own.
        default_policy: that of other operators whose code has the policy to fail; None leaves them.
        retries: the retries of calls of functions, by operator.
    """

    def __init__(
        self,
        build_dataflow: Callable[[StreamProvider], object],
        replacements: Mapping[str, Replacement],
        check: Callable[[Collection[str], Collection[str]], Iterable[ConfigFault]],
        policies: Mapping[str, OnError] = MappingProxyType({}),
        default_policy: OnError | None = None,
        retries: Mapping[str, Retry] = MappingProxyType({}),
    ) -> None:
        self.build_dataflow = build_dataflow
        self._policies = dict(policies)
        self._default_policy = default_policy
        self._retries = dict(retries)
        self._replacements = dict(replacements)
        self._check = check

    def __call__(self, provider: StreamProvider) -> object:
        """Build the dataflow.

        Raises:
            GraphError: if it is malformed.
            ConfigError: if an operator is configured that it lacks, or that does not come from `connect`.
        """
        graph = provider._graph
        graph.replacements = self._replacements | dict(graph.replacements)
        graph.policies = self._policies | dict(graph.policies)
        graph.default_policy = graph.default_policy or self._default_policy
        graph.retries = self._retries | dict(graph.retries)
        try:
            made = self.build_dataflow(provider)
            graph.complete()  # with the operators on dead letters
        except GraphError as error:
            if graph.misconfigured:
                raise ConfigError(graph.misconfigured) from error
            raise
        nodes = [vertex.node for vertex in graph.vertices]
        outside = {node.name for node in nodes if isinstance(node, SourceNode | SinkNode)}
        faults = [*self._check(dict.fromkeys(node.name for node in nodes), outside), *graph.misconfigured]
        if faults:
            raise ConfigError(faults)
        return made
