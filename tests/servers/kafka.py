"""Apache Kafka: one node in KRaft mode, from Maven's jars."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.servers.certificates import CERTIFICATE, KEY, PASSWORD, USER, write_certificates
from tests.servers.debian import require
from tests.servers.server import INSTALLED, Server, ServerError, run

__all__ = ["Kafka"]

VERSION = "4.1.1"
_HOME = INSTALLED / f"kafka-{VERSION}"
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>broker</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""
_SETTINGS = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
log.dirs={data}
num.partitions=1
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
num.network.threads=2
num.io.threads=2
log.retention.ms=-1
log.segment.delete.delay.ms=1000
log.cleaner.dedupe.buffer.size=10485760
"""
_SECURED = """
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},SECURED://127.0.0.1:{secured}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SECURED://127.0.0.1:{secured}
sasl.enabled.mechanisms=PLAIN
listener.name.secured.plain.sasl.jaas.config={login}
listener.name.secured.ssl.keystore.type=PEM
listener.name.secured.ssl.keystore.location={store}
"""
_LOGIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'


class Kafka(Server):
    """A broker without passwords, and a port with TLS where there is one; topics must be made."""

    name = "Kafka"
    ports = 3

    @classmethod
    def missing(cls) -> str | None:
        """Return the reason why the server cannot be started, such as a missing package, or None."""
        if shutil.which("java") is None:
            return "Java 17 is not installed"
        return None if _HOME.exists() else f"Kafka {VERSION} is not installed"

    @classmethod
    def install(cls) -> None:
        """Resolve the jars by Maven, and make an empty data folder to start from."""
        if cls.missing() is None:
            return
        require("java", "openjdk-17-jre-headless")
        maven = require("mvn", "maven")
        part = INSTALLED / f"{_HOME.name}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        (part / "pom.xml").write_text(_POM, encoding="utf-8")
        own = f"-Dmaven.repo.local={part}/maven"
        run(maven, "-q", "-B", own, _PLUGIN, f"-DoutputDirectory={part}/libs", "-DincludeScope=runtime", folder=part)
        shutil.rmtree(part / "maven")
        _write_settings(part / "server.properties", part / "data", 9092)
        tool = ("kafka.tools.StorageTool", "format", "-t", "malflowmalflowmalflow1", "-c", "server.properties")
        run(*_java(part / "libs"), *tool, folder=part)
        part.rename(_HOME)

    @property
    def address(self) -> str:
        """The bootstrap server."""
        return f"127.0.0.1:{self.port}"

    @property
    def secured(self) -> str:
        """The bootstrap server that wants TLS and a password."""
        return f"127.0.0.1:{self.port + 2}"

    def configure(self) -> None:
        """Write the settings, and copy the empty data folder."""
        shutil.copytree(_HOME / "data", self.folder / "data")
        _write_settings(self.folder / "server.properties", self.folder / "data", self.port)
        write_certificates(self.folder)
        store = self.folder / "store.pem"
        store.write_text("".join((self.folder / name).read_text("ascii") for name in (KEY, CERTIFICATE)), "ascii")
        with (self.folder / "server.properties").open("a", encoding="utf-8") as settings:
            ports = {"port": self.port, "controller": self.port + 1, "secured": self.port + 2}
            settings.write(_SECURED.format(**ports, login=_LOGIN, store=store))

    def command(self) -> Sequence[str]:
        """Return the command that is the server, in the foreground."""
        return [*_java(_HOME / "libs"), "kafka.Kafka", "server.properties"]


def _java(libs: Path) -> Sequence[str]:
    found = shutil.which("java")
    if found is None:
        raise ServerError("no Java")
    quick = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
    return [found, *quick, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{libs}/*"]


def _write_settings(path: Path, data: Path, port: int) -> None:
    path.write_text(_SETTINGS.format(port=port, controller=port + 1, data=data), encoding="utf-8")
