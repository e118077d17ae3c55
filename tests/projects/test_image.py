"""The image of a project: its steps run in a folder, and its command on a read-only root as a plain user."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest

from tests.kit.nights import only_nightly
from tests.kit.waiting import wait_until
from tests.projects.conftest import Make, started
from tests.projects.image import can_isolate, instructions, isolated
from tests.servers.server import free_ports
from tests.test_fresh_install import install, ran

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
KEY = "0123456789abcdef" * 4
TOKEN = "a-token-of-the-test"  # noqa: S105 - of nothing else


DOCKER = shutil.which("docker")


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a folder that other users can enter, and that contains the image's writable folders."""
    folder = Path(tempfile.mkdtemp(prefix="malflow-image-"))
    folder.chmod(0o755)
    try:
        for name in ("state", "tmp"):
            (folder / name).mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder)


def built(project: Path, place: Path, python: Path) -> list[str]:
    """Run the steps of a Dockerfile in a folder, and return the command of the image."""
    steps = dict(instructions((project / "Dockerfile").read_text()))
    (place / "app").mkdir()
    for name, text in instructions((project / "Dockerfile").read_text()):
        if name == "COPY":
            for it in text.split()[:-1]:
                shutil.copy(project / it, place / "app")
        elif name == "RUN" and text.startswith("python "):
            ran([str(python), *text.split()[1:]], place / "app").check_returncode()
    (place / "app").chmod(0o555)
    return [*json.loads(steps["ENTRYPOINT"]), *json.loads(steps["CMD"])]


def variables(place: Path, python: Path, port: int) -> dict[str, str]:
    """Return the environment of the image, with this test's state and port."""
    return {
        "PATH": f"{python.parent}:/usr/bin:/bin",
        "MALFLOW_PROFILE": "prod",
        "PYTHONUNBUFFERED": "1",
        "HOME": str(place / "tmp"),
        "TMPDIR": str(place / "tmp"),
        "STATE": str(place / "state"),
        "MALFLOW_SIGNING_KEY": KEY,
        "MALFLOW_TOKEN": TOKEN,
        "MALFLOW_SERVE__ADDRESS": f"0.0.0.0:{port}",
    }


def answer(port: int, path: str, host: str = "localhost") -> int:
    request = Request(f"http://127.0.0.1:{port}{path}", headers={"Host": host})
    try:
        with urlopen(request, timeout=10) as reply:  # noqa: S310 - on this machine
            return int(reply.status)
    except HTTPError as error:
        return error.code
    except OSError:
        return 0


def check_runs(place: Path, command: list[str], environment: dict[str, str], port: int) -> None:
    """Check that an image runs, answers its probes, stops on SIGTERM, and resumes."""
    if can_isolate():
        command = isolated([place / "state", place / "tmp"], environment, *command)
    counts: list[tuple[str, int]] = []
    for number in range(2):
        with started(*command, cwd=place / "app", env=environment) as running:
            running.read(20)
            wait_until(lambda: answer(port, "/readyz") == 200, 60)
            assert [answer(port, it) for it in ("/healthz", "/metrics", "/api/progress")] == [200, 200, 401]
            hosts = {"hello:8642": 200, "10.1.2.3:8642": 200, "elsewhere": 421}
            assert {it: answer(port, "/metrics", it) for it in hosts} == hosts
            done = running.stop(signal.SIGTERM)
        assert done.code == 0, done.err
        assert ("resumed" in done.err) == bool(number)
        assert not {KEY, TOKEN} & {*re.findall(r"[\w-]+", done.out + done.err)}
        counts += [(word, int(count)) for word, count in re.findall(r"key: '(\w+)', value: (\d+)", done.out)]
    assert len(counts) == len({*counts})
    assert max(count for _, count in counts) > 2
    assert {it.name for it in place.iterdir()} - {"environment"} == {"app", "state", "tmp"}
    written = {it.name for it in (place / "app").rglob("*")} - {"flow.py", "malflow.toml", "requirements.txt"}
    assert all("flow" in it or it == "__pycache__" for it in written)


@pytest.mark.skipif(sys.platform != "linux", reason="the folders are mounted as Linux does")
@pytest.mark.fault("R3")
@pytest.mark.fault("R4")
def test_image_of_a_project(project: Make, place: Path) -> None:
    python, port = Path(sys.executable), free_ports(1)
    command = built(project(), place, python)
    environment = {**variables(place, python, port), "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    check_runs(place, [str(python), "-m", *command], environment, port)


@only_nightly
def test_image_of_a_project_with_its_own_packages(project: Make, place: Path) -> None:
    folder = project()
    ran([sys.executable, "-m", "venv", str(place / "environment")], place).check_returncode()
    python, port = place / "environment" / "bin" / "python", free_ports(1)
    [requirement] = (folder / "requirements.txt").read_text().splitlines()
    extras = requirement[requirement.index("[") : requirement.index("]") + 1]
    install(python, f"{ROOT}{extras}")
    command = built(folder, place, python)
    check_runs(place, [str(python.parent / command[0]), *command[1:]], variables(place, python, port), port)


@pytest.mark.skipif(not can_isolate(), reason="needs root, and a kernel that lets it mount")
def test_isolated_command_can_write_to_its_folders_only(place: Path) -> None:
    (place / "app").mkdir(mode=0o777)
    script = "id -u; touch state/a && echo wrote; touch app/a || echo refused; touch /etc/malflow-test || echo refused"
    command = isolated([place / "state", place / "tmp"], {"PATH": "/usr/bin:/bin"}, "sh", "-c", script)
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["10001", "wrote", "refused", "refused"]


def has_daemon() -> bool:
    """Whether a container daemon can be reached."""
    return DOCKER is not None and docker("info").returncode == 0


def docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([DOCKER or "", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.skipif(not has_daemon(), reason="needs a container daemon")
def test_image_in_a_container(project: Make) -> None:
    folder, port, name = project(), free_ports(1), f"malflow-test-{uuid4().hex}"
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(wheel, check=True)
    [packed] = folder.glob("*.whl")
    (folder / "requirements.txt").write_text(f"./{packed.name}[serve]\n")
    with (folder / ".dockerignore").open("a") as ignored:
        ignored.write("!*.whl\n")
    file = folder / "Dockerfile"
    file.write_text(file.read_text().replace("COPY requirements.txt", f"COPY {packed.name} requirements.txt"))
    done = docker("build", "--tag", name, str(folder))
    assert done.returncode == 0, done.stderr
    options = ["--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", f"--volume={name}:/state", f"--env-file={folder}/.env"]
    try:
        for number in range(2):
            begun = docker("run", "--detach", f"--name={name}", f"--publish=127.0.0.1:{port}:8642", *options, name)
            assert begun.returncode == 0, begun.stderr
            wait_until(lambda: answer(port, "/readyz") == 200, 60)
            assert docker("stop", "--time=60", name).returncode == 0
            log = docker("logs", name)
            assert ("resumed" in log.stderr) == bool(number), log.stderr
            assert docker("inspect", "--format={{.State.ExitCode}}", name).stdout == "0\n"
            docker("rm", name)
    finally:
        docker("rm", "--force", name)
        docker("volume", "rm", name)
        docker("rmi", name)
