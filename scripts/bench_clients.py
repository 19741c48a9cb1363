"""Measures the client libraries beside those of NATS JetStream, in turn, in several rounds: `make bench-clients`.

Prints the median of each, its lowest and highest round, and its ratio to the one of NATS in the same language.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "bench-clients"
CLIENTS = ROOT / "clients"
LISTENING = r"listening on .*:(\d+)\n"
NATS_LISTENING = r"Listening for client connections on 127.0.0.1:(\d+)"

GO, NATS_GO = [str(CACHE / "go-bench")], [str(CACHE / "go-bench"), "--server", "nats"]
TS, NATS_TS = ["node", "bench.js"], ["node", "nats.js"]
PYTHON, NATS_PYTHON = ([str(CLIENTS / "python/.venv/bin/python"), name] for name in ("bench.py", "nats_bench.py"))

# name, operation, options, then the commands for Tidewire and for NATS, each with its folder
RUNS = [
    ("Go, publish, 16 in flight", "publish", {"count": 60_000, "in-flight": 16, "size": 128}, GO, NATS_GO, "go/bench"),
    ("Go, publish, 256 in flight", "publish", {"count": 200_000, "in-flight": 256, "size": 128}, GO, NATS_GO, "go/bench"),
    ("Go, subscribe, 1 KiB", "subscribe", {"count": 500_000, "size": 1024}, GO, NATS_GO, "go/bench"),
    ("Go, jobs, 64 at a time", "jobs", {"count": 60_000, "in-flight": 64, "size": 128}, GO, NATS_GO, "go/bench"),
    ("TypeScript, publish, 256 in flight", "publish", {"count": 150_000, "in-flight": 256, "size": 128}, TS, NATS_TS, "ts/bench"),
    ("TypeScript, subscribe", "subscribe", {"count": 300_000, "in-flight": 1024, "size": 128}, TS, NATS_TS, "ts/bench"),
    ("Python, publish, 16 in flight", "publish", {"count": 40_000, "in-flight": 16, "size": 128}, PYTHON, NATS_PYTHON, "python/bench"),
    ("Python, publish, 256 in flight", "publish", {"count": 100_000, "in-flight": 256, "size": 128}, PYTHON, NATS_PYTHON, "python/bench"),
    ("Python, subscribe", "subscribe", {"count": 200_000, "size": 128}, PYTHON, NATS_PYTHON, "python/bench"),
    ("Python, jobs, 64 at a time", "jobs", {"count": 30_000, "in-flight": 64, "size": 128}, PYTHON, NATS_PYTHON, "python/bench"),
]


def build() -> None:
    """Builds the programs, and installs what those of NATS need."""
    CACHE.mkdir(parents=True, exist_ok=True)
    run = lambda *command, folder=ROOT: subprocess.run(command, cwd=folder, check=True)
    run("go", "build", "-o", CACHE / "nats-server", "github.com/nats-io/nats-server/v2")
    run("go", "build", "-o", CACHE / "go-bench", ".", folder=CLIENTS / "go/bench")
    run("npm", "ci", "--no-audit", "--no-fund", "--loglevel=error", folder=CLIENTS / "ts/bench")


@contextmanager
def process(command: list[str], log: pathlib.Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            yield server
        finally:
            server.terminate()
            server.wait()


def found(log: pathlib.Path, pattern: str) -> str:
    """Waits for a line of a server that says where it listens."""
    for _ in range(1200):
        match = re.search(pattern, log.read_text())
        if match:
            return match[1]
        time.sleep(0.1)
    raise SystemExit(f"bench-clients: a server does not start:\n{log.read_text()}")


def serve(folder: pathlib.Path, port: str = "0") -> list[str]:
    return [str(ROOT / "bin/tidewire"), "serve", "--port", port, "--data-dir", str(folder / "data")]


def nats_server(folder: pathlib.Path, name: str, more: str) -> list[str]:
    """JetStream on files. By default it calls fsync every two minutes; with sync_interval always, before each answer, as PostgreSQL does."""
    config = folder / f"{name}.conf"
    config.write_text(f'listen: "127.0.0.1:-1"\njetstream {{ store_dir: "{folder}/{name}", max_file: 20GB, {more} }}\n')
    return [str(CACHE / "nats-server"), "-c", str(config)]


def measure(command: list[str], op: str, options: dict[str, int], url: str, folder: str) -> dict[str, float]:
    arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    if folder == "ts/bench":
        arguments += ["--stream", f"bench-{time.time_ns()}"]
    program, more = (command, []) if command[0] != GO[0] else (command[:1], command[1:])
    done = subprocess.run([*program, op, "--url", url, *more, *arguments], cwd=CLIENTS / folder, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"bench-clients: {command[0]} {op}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def throughput(rounds: int, tidewire: str, durable: str, nats: str, only: str) -> None:
    print(f"\n| | Tidewire, messages/s | NATS, messages/s | ratio |\n|---|---|---|---|", flush=True)
    for name, op, options, own, other, folder in RUNS:
        if only not in name:
            continue
        results: dict[str, list[float]] = {"own": [], "other": []}
        for _ in range(rounds):
            results["own"].append(measure(own, op, options, tidewire, folder)["per_second"])
            # A publish waits for the disk on both sides; there, NATS is slower, so it gets fewer. What is read is stored before the time begins.
            waits = op == "publish"
            fewer = {**options, "count": options["count"] // 10} if waits else options
            results["other"].append(measure(other, op, fewer, durable if waits else nats, folder)["per_second"])
        median = {side: statistics.median(values) for side, values in results.items()}
        spread = {side: f"{median[side]:,.0f} ({min(values):,.0f} to {max(values):,.0f})" for side, values in results.items()}
        print(f"| {name} | {spread['own']} | {spread['other']} | {median['own'] / median['other']:.2f} |", flush=True)


def memory(tidewire: str, nats: str) -> None:
    print("\n| memory of a client with one subscription | bytes |\n|---|---|", flush=True)
    for name, command, url, folder in [("Go", GO, tidewire, "go/bench"), ("nats.go", NATS_GO, nats, "go/bench"),
                                       ("TypeScript on Node", ["node", "--expose-gc", "bench.js"], tidewire, "ts/bench")]:
        print(f"| {name} | {measure(command, 'memory', {'count': 500}, url, folder)['bytes_per_client']:,.0f} |", flush=True)


def reconnect(folder: pathlib.Path, clients: int) -> None:
    """The server is killed under so many clients, and started again."""
    log = folder / "again.log"
    with process(serve(folder), log) as first:
        port = found(log, LISTENING)
        bench = subprocess.Popen([*GO, "reconnect", "--url", f"ws://127.0.0.1:{port}/ws", "--count", str(clients)],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert bench.stderr and bench.stdout
        bench.stderr.readline()
        first.send_signal(signal.SIGKILL)
        first.wait()
    with process(serve(folder, port), log):
        began = time.monotonic()
        took = json.loads(bench.stdout.readline())["seconds"]
        print(f"\n{clients} clients after kill -9 of the server: all have resumed {took:.2f} s after the first one; "
              f"{time.monotonic() - began:.2f} s after the start of the new process")
        bench.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="part of the name of a row, such as Go")
    options = parser.parse_args()
    build()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tidewire-bench-", dir=CACHE))
    os.chmod(folder, 0o755)  # as root, PostgreSQL runs as another user
    try:
        with (process(serve(folder), folder / "tidewire.log"), process(nats_server(folder, "durable", "sync_interval: always"), folder / "durable.log"),
              process(nats_server(folder, "nats", ""), folder / "nats.log")):
            tidewire = f"ws://127.0.0.1:{found(folder / 'tidewire.log', LISTENING)}/ws"
            durable, nats = (f"nats://127.0.0.1:{found(folder / log, NATS_LISTENING)}" for log in ("durable.log", "nats.log"))
            throughput(options.rounds, tidewire, durable, nats, options.only)
            if not options.only:
                memory(tidewire, nats)
        if not options.only:
            reconnect(folder, 1_000)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
