#!/usr/bin/env python3
"""parameter_server_kills.py PROGRAM: twenty times a worker is killed and started again, and no update that was
acknowledged is lost or applied twice.

Two servers, three workers that send every push twice. The servers' ledgers (what is in their memory) are compared
with what the workers wrote down when the acknowledgement came. The victim, and how much it does before, are drawn from
a seed that is printed.
"""
import collections
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

PROGRAM = sys.argv[1]
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else int.from_bytes(os.urandom(4), "little")
KILLS, SERVERS, WORKERS, CLOSE_AT = 20, 2, 3, 2
PATIENCE = 60  # seconds for any one thing

draw = random.Random(SEED)
folder = pathlib.Path(tempfile.mkdtemp(prefix="parameter_server_"))
addresses = [f"unix:@parameter-server-kills-{os.getpid()}-{i}" for i in range(SERVERS)]
running = []


def start(*arguments):
    process = subprocess.Popen([PROGRAM, *arguments], stdout=subprocess.DEVNULL)
    running.append(process)
    return process


def start_worker(number):
    return start("work", "--servers", ",".join(addresses), "--worker", str(number), "--times", "2",
                 "--hidden", "32", "--batch", "20", "--acks", str(folder / f"acks{number}"))


def acknowledged(number):
    file = folder / f"acks{number}"
    return file.read_text().splitlines() if file.exists() else []


def wait_for_more(number, lines, process):
    """Until the worker has written down so many more acknowledgements."""
    wanted = len(acknowledged(number)) + lines
    limit = time.monotonic() + PATIENCE
    while len(acknowledged(number)) < wanted:
        assert process.poll() is None, f"worker {number} ended by itself with {process.returncode}"
        assert time.monotonic() < limit, f"worker {number} gets no further"
        time.sleep(0.002)


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()


def check_server(number, text):
    entries = [tuple(map(int, line.split())) for line in (folder / f"ledger{number}").read_text().splitlines()]
    times = collections.Counter((worker, push) for worker, push, _ in entries)
    twice = [key for key, count in times.items() if count > 1]
    assert not twice, f"server {number} applied twice: {twice[:5]}"
    acks = {(int(w), int(p)) for line in text for s, w, p in [line.split()] if int(s) == number}
    lost = acks - times.keys()
    assert not lost, f"server {number} lost {len(lost)} acknowledged pushes: {sorted(lost)[:5]}"
    versions = collections.defaultdict(list)
    for worker, _, version in entries:
        versions[version].append(worker)
    newest = max(versions)
    for version, workers in versions.items():
        assert len(set(workers)) == len(workers), f"version {version} has two pushes of one worker: {workers}"
        assert len(workers) == CLOSE_AT or version == newest, f"version {version} closed at {workers}"
    return len(acks), len(entries), newest


def main():
    print(f"seed {SEED}")
    servers = [
        start("serve", "--listen", addresses[i], "--server", f"{i}/{SERVERS}", "--close-at", str(CLOSE_AT),
              "--versions", "1000000", "--hidden", "32", "--ledger", str(folder / f"ledger{i}"))
        for i in range(SERVERS)
    ]
    workers = [start_worker(i) for i in range(WORKERS)]
    for _ in range(KILLS):
        victim = draw.randrange(WORKERS)
        wait_for_more(victim, draw.randrange(1, 12), workers[victim])
        kill(workers[victim])
        workers[victim] = start_worker(victim)
    for i, worker in enumerate(workers):
        wait_for_more(i, 3, worker)
    for worker in workers:
        kill(worker)
    table = subprocess.run([PROGRAM, "watch", "--servers", ",".join(addresses), "--once", "--stop", "--hidden", "32"],
                           check=True, capture_output=True, text=True, timeout=PATIENCE).stdout
    for server in servers:
        assert server.wait(PATIENCE) == 0, "a server ended badly"
    print(table)
    acks = [line for i in range(WORKERS) for line in acknowledged(i)]
    for i in range(SERVERS):
        known, applied, newest = check_server(i, acks)
        print(f"server {i}: {applied} pushes applied, {known} of them acknowledged, {newest} versions")


try:
    main()
finally:
    for process in running:
        if process.poll() is None:
            process.kill()
            process.wait()
