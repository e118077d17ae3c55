"""The Kubernetes manifest, compose file and Dockerfile of a project, checked without running them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from malflow.cli.commands.new import TEMPLATES, project_files
from tests.projects.conftest import Make
from tests.projects.image import instructions

ROOT = Path(__file__).parents[2]
TMP = "/tmp"  # noqa: S108 - of the container
SERVED = [it for it in TEMPLATES if it not in {"files", "sql"}]


def objects(template: str) -> dict[str, Any]:
    """Return the objects of a manifest by their kind."""
    return {it["kind"]: it for it in yaml.safe_load_all(project_files("hello", template)["kubernetes.yaml"])}


def pod_of(template: str) -> dict[str, Any]:
    found = objects(template)
    spec = found["CronJob"]["spec"]["jobTemplate"]["spec"] if "CronJob" in found else found["Deployment"]["spec"]
    pod: dict[str, Any] = spec["template"]["spec"]
    return pod


@pytest.mark.parametrize("template", TEMPLATES)
def test_manifest_has_the_official_schema(template: str) -> None:
    for it in objects(template).values():
        for version in ("1.29", kubernetes_validate.latest_version()):
            kubernetes_validate.validate(it, version, strict=True)
    broken = objects(template)["PersistentVolumeClaim"]
    broken["spec"]["accessModes"] = "ReadWriteOnce"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("template", TEMPLATES)
def test_pod_may_write_state_and_temporary_files_only(template: str) -> None:
    pod = pod_of(template)
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    writable = {it["mountPath"] for it in container["volumeMounts"] if not it.get("readOnly")}
    assert writable == {"/state", TMP}
    assert pod["terminationGracePeriodSeconds"] == 60
    assert {it["name"] for it in container["volumeMounts"]} == {it["name"] for it in pod["volumes"]}
    claims = [it["persistentVolumeClaim"]["claimName"] for it in pod["volumes"] if "persistentVolumeClaim" in it]
    assert objects(template)["PersistentVolumeClaim"]["metadata"]["name"] in claims


@pytest.mark.parametrize("template", SERVED)
def test_one_pod_at_a_time_with_probes(template: str) -> None:
    deployment = objects(template)["Deployment"]
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"})
    assert deployment["spec"]["selector"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"]
    [container] = pod_of(template)["containers"]
    [port] = container["ports"]
    for probe, path in {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}.items():
        assert container[f"{probe}Probe"]["httpGet"] == {"path": path, "port": port["name"]}


def test_jobs_of_files_never_overlap() -> None:
    assert objects("files")["CronJob"]["spec"]["concurrencyPolicy"] == "Forbid"


@pytest.mark.parametrize("template", TEMPLATES)
def test_secrets_of_the_pod_are_made(template: str) -> None:
    [container] = pod_of(template)["containers"]
    needed = {it["valueFrom"]["secretKeyRef"]["key"] for it in container["env"] if "valueFrom" in it}
    assert "MALFLOW_SIGNING_KEY" in needed
    lines = project_files("hello", template)[".env"].splitlines()
    assert needed <= {it.partition("=")[0] for it in lines}
    variables = {it["name"] for it in container["env"]}
    settings = project_files("hello", template)["malflow.toml"]
    assert set(re.findall(r"\${(\w+)}", settings)) <= variables


@pytest.mark.parametrize("template", TEMPLATES)
def test_compose_file(template: str, project: Make) -> None:
    folder = project(template)
    content = yaml.safe_load((folder / "compose.yaml").read_text())
    services = content["services"]
    expected = {
        "hello",
        *(["prometheus", "grafana"] if template in SERVED else []),
        *(["kafka"] * (template == "kafka")),
    }
    assert services.keys() == expected
    job = services["hello"]
    assert (job["read_only"], job["tmpfs"], job["cap_drop"]) == (True, [TMP], ["ALL"])
    volumes = [it.split(":") for service in services.values() for it in service["volumes"]]
    for source, *_ in volumes:
        assert (folder / source).exists() if source.startswith("./") else source in content["volumes"], source
    assert {source for source, *_ in volumes if not source.startswith("./")} == content["volumes"].keys()
    for service in services.values():
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:")


@pytest.mark.parametrize("template", SERVED)
def test_prometheus_scrapes_the_job(template: str) -> None:
    texts = project_files("hello", template)
    [scrape] = yaml.safe_load(texts["monitoring/prometheus.yml"])["scrape_configs"]
    assert scrape["static_configs"] == [{"targets": ["hello:8642"]}]
    assert 'address = "0.0.0.0:8642"' in texts["malflow.toml"]
    assert 'hosts = ["hello"]' in texts["malflow.toml"]
    source = yaml.safe_load(texts["monitoring/datasource.yaml"])["datasources"][0]["uid"]
    assert f'"uid": "{source}"' in texts["monitoring/dashboard.json"]


@pytest.mark.parametrize("template", TEMPLATES)
def test_image_is_that_of_an_unprivileged_user(template: str) -> None:
    steps = [*instructions(project_files("hello", template)["Dockerfile"])]
    found = dict(steps)
    assert "-slim" in found["FROM"]
    assert (found["USER"], found["STOPSIGNAL"], found["ENTRYPOINT"]) == ("10001", "SIGTERM", '["malflow"]')
    assert [name for name, _ in steps].index("USER") > max(at for at, (name, _) in enumerate(steps) if name == "RUN")
    copied = {it for name, text in steps if name == "COPY" for it in text.split()[:-1]}
    ignored = project_files("hello", template)[".dockerignore"]
    assert {it.removeprefix("!") for it in ignored.splitlines() if it.startswith("!")} == copied
    assert found["VOLUME"] == "/state"


def test_page_on_deploying_names_all_alerts_and_templates() -> None:
    page = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
    rules = yaml.safe_load(project_files("hello", "minimal")["monitoring/alerts.yml"])["groups"][0]["rules"]
    assert re.findall(r"^- `(Malflow\w+)`:", page, re.MULTILINE) == [it["alert"] for it in rules]
    assert re.findall(r"^- `(\w+)` ", page, re.MULTILINE)[: len(TEMPLATES)] == [*TEMPLATES]
