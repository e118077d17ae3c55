from __future__ import annotations

import pytest

from tests.connectors.kafka.kit import Broker


@pytest.fixture(scope="session")
def broker(kafka_servers: str) -> Broker:
    return Broker(kafka_servers)
