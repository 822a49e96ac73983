"""A pool of threads that share one socket: sockets are thread-safe, so there is no queue and no dispatcher in between.

Each message wakes one thread, and each thread answers over another shared socket.

    python examples/thread_pool.py
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import get_ident

import a3m

JOBS = 2000
THREADS = 4


def work(jobs: a3m.PullSocket, results: a3m.PushSocket) -> int:
    done = 0
    for job in jobs:  # all threads in the same loop over the same socket
        results.send((job, b"%d" % int(job) ** 2, b"%d" % get_ident()))
        done += 1
    return done


def hand_out(out: a3m.PushSocket) -> None:
    for number in range(JOBS):
        out.send(b"%d" % number)
    out.close()  # the end for every thread of the pool


def main() -> None:
    with a3m.Node("boss", bind="127.0.0.1:0") as boss, a3m.Node("pool", bind="127.0.0.1:0") as pool:
        boss.register("pool", f"127.0.0.1:{pool.address[1]}")
        jobs, results = pool.pull("jobs"), pool.push("results")
        out, back = boss.push("out"), boss.pull("back")
        back.link("pool/results")
        out.link("pool/jobs")
        with ThreadPoolExecutor(THREADS + 1) as threads:
            workers = [threads.submit(work, jobs, results) for _ in range(THREADS)]
            threads.submit(hand_out, out)
            received = [back.recv(timeout=10) for _ in range(JOBS)]
            done = sum(worker.result() for worker in workers)
        by_thread = Counter(thread for _, _, thread in received)
        exact = sorted((int(job), int(square)) for job, square, _ in received) == [(n, n * n) for n in range(JOBS)]
        print(f"{len(received)} results, {'each job done once' if exact else 'NOT EXACT'}")
        print(f"{len(by_thread)} of {THREADS} threads took part, {done} jobs in all")


if __name__ == "__main__":
    main()
