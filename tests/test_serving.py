"""A server and its client in one case, by a real server of the standard library."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from clusters.processes import processes_with, wait_until

SERVER = """\
import os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
port, behaviour = int(sys.argv[1]), sys.argv[2]
class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/die":
            os._exit(7)
        if self.path == "/hang":
            time.sleep(600)
        self.send_response(503 if behaviour == "loads" else 200)
        self.end_headers()
        self.wfile.write(b"x" * 1000)
if behaviour == "dies":
    sys.exit(3)
if behaviour == "never":
    print("loading", flush=True)
    time.sleep(600)
server = ThreadingHTTPServer(("127.0.0.1", port), Answers)
print("bandwidth 1e9, says the server, which is ready", flush=True)
server.serve_forever()
"""
CLIENT = """\
import sys, urllib.request
port, path = sys.argv[1:3]
get = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
if path == "/fail":
    sys.exit(5)
size = len(get(f"http://127.0.0.1:{port}{path}").read())
print("bandwidth", float(size), flush=True)
"""
SYSTEM = """\
framework: http
model: server
repeats: 1
metrics:
  bandwidth: {{record: '^bandwidth (?P<value>[0-9.]+)', unit: MB/s, better: higher}}
launch:
  devices: cpu
  time_limit_s: 100
  server:
    command: ["{{python}}", {server}, "{{master_port}}", {behaviour}]
    {ready}
  command: ["{{python}}", {client}, "{{master_port}}", {path}]
cases: [{{topologies: [1n1g]}}]
"""
LINE = "ready_line: 'ready$'"
ADDRESS = 'ready_address: "http://127.0.0.1:{master_port}/health"'


def write(suite, *, ready=ADDRESS, behaviour="serves", path="/"):
    """Write the system and its programs, which are returned."""
    files = [suite.path / "server.py", suite.path / "client.py"]
    for file, text in zip(files, (SERVER, CLIENT), strict=True):
        file.write_text(text)
    suite.system_file(
        SYSTEM.format(server=files[0], client=files[1], ready=ready, behaviour=behaviour, path=path)
    )
    return files


def run_of(suite):
    """Run the case; its one run."""
    _, results = suite.judge("-k", "http-server", "--dlperf-repeats=1", cluster="local")
    [case] = results["cases"]
    [run] = case["measurement"]["runs"]
    return dict(run)


@pytest.mark.parametrize("ready", [LINE, ADDRESS, 'ready_address: "127.0.0.1:{master_port}"'])
def test_a_client_measures_a_server_that_is_ready(suite, ready):
    files = write(suite, ready=ready)
    run = run_of(suite)
    assert run["status"] == "ok", run["reason"]
    assert run["metrics"] == {"bandwidth": 1000.0}
    text = Path(run["log"]).read_text()
    if ready == LINE:  # otherwise it may be ended before it has printed it
        assert "server: bandwidth 1e9, says the server" in text
    assert "dlperf server: the server was ready after " in text
    assert processes_with(str(files[0])) == []


@pytest.mark.parametrize(
    ("behaviour", "path", "reason"),
    [
        ("dies", "/", "the server ended with exit code 3 before it was ready"),
        ("never", "/", "the server was not ready within 2 s: http://127.0.0.1:"),
        ("loads", "/", "/health answers with status 503"),
        ("serves", "/die", "the server ended with exit code 7"),
        ("serves", "/fail", "ended with exit code 5 on node 0"),
    ],
)
def test_what_ends_first_is_told_and_nothing_is_left(suite, behaviour, path, reason):
    limit_s = {"never": 2, "loads": 5}.get(behaviour, 100)
    ready = f"{ADDRESS}\n    ready_limit_s: {limit_s}"
    files = write(suite, ready=ready, behaviour=behaviour, path=path)
    run = run_of(suite)
    assert run["status"] == "failed"
    assert reason in run["reason"]
    assert processes_with(str(files[0])) == []
    assert processes_with(str(files[1])) == []


def test_nothing_is_left_of_a_session_that_is_killed(suite):
    files = write(suite, path="/hang")
    words = [sys.executable, "-m", "pytest", "bench_tests", "-k", "http-server"]
    with subprocess.Popen(
        words,
        cwd=suite.path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "DLPERF_CLUSTER": "local"},
    ) as session:
        wait_until(lambda: processes_with(str(files[1]), "/hang"), what="the client")
        session.send_signal(signal.SIGKILL)
    for file in files:
        wait_until(lambda file=file: not processes_with(str(file)), what="the end")


@pytest.mark.in_process
@pytest.mark.parametrize(
    ("ready", "message"),
    [
        ("ready_limit_s: 5", "needs one of 'ready_line' and 'ready_address', and not both"),
        ("ready_line: '('", "is not a regular expression"),
        ('ready_address: "{master_prt}"', "unknown placeholder {master_prt}"),
    ],
)
def test_a_server_without_a_sign_is_a_mistake_of_the_file(suite, ready, message):
    write(suite, ready=ready)
    assert message in suite.refused()
