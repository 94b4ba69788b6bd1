"""pottery's Redlock, as its documentation uses it: requests on standard input, answers on standard output, one JSON object a line."""

import json
import logging
import sys
import threading
import time

from pottery import Redlock
from redis import Redis

logging.disable(logging.CRITICAL)

AT_ONCE = 64


def say(answer):
    print(json.dumps(answer), flush=True)


def percentiles(times):
    first = times[0] * 1e6 if times else None
    times.sort()
    at = lambda percent: times[min(len(times) * percent // 100, len(times) - 1)] * 1e6 if times else None
    return {"first": first, "p50": at(50), "p99": at(99), "count": len(times)}


def each(workers, work):
    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Peer:
    def __init__(self):
        self.masters = {}

    def lock(self, request, worker):
        nodes = tuple(request["nodes"])
        if nodes not in self.masters:
            self.masters[nodes] = {Redis.from_url(f"redis://{node}") for node in nodes}
        return Redlock(key=f"{request['prefix']}-{worker}", masters=self.masters[nodes], auto_release_time=request["ttl_ms"] / 1000)

    def cycles(self, request):
        acquire, release, errors = [], [], []
        start = time.perf_counter()

        def work(worker):
            while time.perf_counter() < start + request["seconds"]:
                lock = self.lock(request, worker)
                began = time.perf_counter()
                try:
                    lock.acquire()
                    acquire.append(time.perf_counter() - began)
                    began = time.perf_counter()
                    lock.release()
                    release.append(time.perf_counter() - began)
                except Exception as error:
                    errors.append(error)

        each(request["workers"], work)
        return {
            "cycles": len(release),
            "seconds": time.perf_counter() - start,
            "errors": len(errors),
            "acquire_us": percentiles(acquire),
            "release_us": percentiles(release),
        }

    def handover(self, request):
        gaps, released = [], [0.0]
        until = time.perf_counter() + request["seconds"]

        def work(_):
            while time.perf_counter() < until:
                lock = self.lock(request, 0)
                if not lock.acquire(timeout=max(until - time.perf_counter(), 0.01)):
                    continue
                if released[0]:
                    gaps.append(time.perf_counter() - released[0])
                released[0] = 0.0
                time.sleep(0.002)
                released[0] = time.perf_counter()
                lock.release()
                time.sleep(0.02)

        each(request["workers"], work)
        return {"gap_us": percentiles(gaps)}

    def renew(self, request):
        began = time.perf_counter()
        locks = [None] * request["workers"]

        def slices(work):
            each(AT_ONCE, lambda worker: [work(number) for number in range(worker, len(locks), AT_ONCE)])

        def take(number):
            locks[number] = self.lock(request, number)
            locks[number].acquire()

        slices(take)
        say({"held": len(locks), "seconds": time.perf_counter() - began})
        renewals, lost = [], []
        until = time.perf_counter() + request["seconds"]

        def extend(number):
            if locks[number] is None:
                return
            try:
                locks[number].extend()
                renewals.append(number)
            except Exception:
                locks[number] = None
                lost.append(number)

        while time.perf_counter() < until:
            following = min(time.perf_counter() + request["interval_ms"] / 1000, until)
            slices(extend)
            time.sleep(max(following - time.perf_counter(), 0))
        return {"lost": len(lost), "renewals": len(renewals), "done": True}

    def take(self, request):
        self.lock(request, 0).acquire()
        return {"held": True}

    hold = take

    def stale(self, request):
        lock = self.lock(request, 0)
        lock.acquire()
        say({"held": True})
        time.sleep(request["seconds"])
        try:
            lock.release()
        except Exception:
            pass  # The library tells that the lock was lost.
        return {"done": True}

    def extension(self, request):
        """One extension after a while."""
        lock = self.lock(request, 0)
        lock.acquire()
        say({"held": True})
        time.sleep(request["seconds"])
        try:
            lock.extend()
        except Exception:
            return {"extended": False, "done": True}
        return {"extended": True, "done": True}

    def foreign(self, request):
        """The release of a lock that was not acquired."""
        try:
            self.lock(request, 0).release()
        except Exception:
            pass  # The library tells that it does not hold the lock.
        return {"done": True}


def main():
    peer = Peer()
    for line in sys.stdin:
        request = {"workers": 1, **json.loads(line)}
        work = getattr(peer, request["do"], None)
        say(work(request) if work else {"unsupported": True})


main()
