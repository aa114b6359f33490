#!/usr/bin/env python3
"""asio_service.py CHORALE ASIO_SERVICE: many requests at once get right answers; a shutdown in the midst of others
leaves no request without its whole answer, and every rank ends well."""
import concurrent.futures
import http.client
import os
import re
import signal
import subprocess
import sys

TABLE = 100_000


def ask(port, path):
    """(status, text), or None where the door was closed."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.connect()
    except ConnectionError:
        return None
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode().strip()
    except (ConnectionResetError, BrokenPipeError, http.client.RemoteDisconnected):
        return None  # waited outside when the door closed; half an answer would be IncompleteRead
    finally:
        connection.close()


def main(chorale, service):
    job = subprocess.Popen([chorale, "run", "-n", "3", "--timeout", "60", "--", service],
                           stdout=subprocess.PIPE, text=True)
    lines = []
    for line in job.stdout:
        lines.append(line)
        serves = re.search(r"process (\d+) serves port (\d+)", line)
        if serves:
            break
    else:
        sys.exit(f"no port: {lines}")
    leader, port = int(serves[1]), int(serves[2])

    bounds = [1009 * i % (TABLE + 500) for i in range(150)]
    with concurrent.futures.ThreadPoolExecutor(20) as visitors:
        answers = list(visitors.map(lambda bound: ask(port, f"/below/{bound}"), bounds))
        wrong = [(b, a) for b, a in zip(bounds, answers) if a != (200, str(min(b, TABLE)))]
        assert not wrong, wrong
        assert ask(port, "/elsewhere")[0] == 404
        assert ask(port, "/below/many")[0] == 404

        late = [visitors.submit(ask, port, f"/below/{bound}") for bound in bounds]
        late[20].result()
        os.kill(leader, signal.SIGTERM)
        answers = [each.result() for each in late]
    wrong = [(b, a) for b, a in zip(bounds, answers) if a not in (None, (200, str(min(b, TABLE))))]
    assert not wrong, wrong
    served = sum(a is not None for a in answers)
    assert served >= 21, served

    rest = job.stdout.read()
    code = job.wait()
    assert code == 0, code
    assert len(re.findall("has nothing left to do", rest)) == 3, rest
    print(f"{len(bounds)} answers at once, {served} of {len(bounds)} around a shutdown, three ranks at rest")


main(*sys.argv[1:])
