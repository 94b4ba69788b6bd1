// The npm libraries of the comparison: redlock and redlock-universal.
//
//   node main.js redlock | redlock-universal   # requests on standard input, answers on standard output: one JSON object a line
import { createInterface } from "node:readline";
import { Redis } from "ioredis";
import Redlock, { Lock } from "redlock";
import { createRedlock, IoredisAdapter, LockManager } from "redlock-universal";

const AT_ONCE = 256;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const say = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");

function clients(nodes) {
  return nodes.map((node) => {
    const [host, port] = node.split(":");
    const client = new Redis({ host, port: Number(port) });
    client.on("error", () => {});
    return client;
  });
}

// A library: lock(key, ttl) makes the attempts that the library makes by default; using(key, ttl, work) renews.
const libraries = {
  redlock(nodes) {
    const redlock = new Redlock(clients(nodes));
    redlock.on("error", () => {});
    return {
      async lock(key, ttl) {
        let lock = await redlock.acquire([key], ttl);
        return {
          release: () => lock.release(),
          extend: async () => {
            lock = await lock.extend(ttl);
          },
        };
      },
      several: {
        by: "`acquire` of several resources",
        lock: (keys, ttl) => redlock.acquire(keys, ttl),
      },
      using: (key, ttl, work) => redlock.using([key], ttl, work),
      foreign: (key) => redlock.release(new Lock(redlock, [key], "of nobody", [], Date.now() + 10_000)),
    };
  },
  "redlock-universal"(nodes) {
    const adapters = clients(nodes).map((client) => new IoredisAdapter(client));
    return {
      async lock(key, ttl) {
        const lock = createRedlock({ adapters, key, ttl });
        const handle = await lock.acquire();
        return {
          release: () => lock.release(handle),
          extend: async () => {
            if (!(await lock.extend(handle, ttl))) throw new Error("not extended");
          },
        };
      },
      several: {
        by: "`acquireBatch`",
        lock: (keys, ttl) => new LockManager({ nodes: adapters, defaultTTL: ttl }).acquireBatch(keys),
      },
      using: (key, ttl, work) => createRedlock({ adapters, key, ttl }).using(work),
      foreign: (key, ttl) =>
        createRedlock({ adapters, key, ttl }).release({ id: "1", key, value: "of nobody", acquiredAt: Date.now(), ttl }),
    };
  },
};

function percentiles(times) {
  const first = times[0] ?? null;
  times.sort((a, b) => a - b);
  const at = (percent) => times[Math.min(Math.floor((times.length * percent) / 100), times.length - 1)] ?? null;
  return { first, p50: at(50), p99: at(99), count: times.length };
}

const micros = () => Number(process.hrtime.bigint()) / 1e3;
const each = (count, work) => Promise.all(Array.from({ length: count }, (_, worker) => work(worker)));
const key = (request, worker) => `${request.prefix}-${worker}`;

async function cycles(library, request) {
  const acquire = [];
  const release = [];
  let errors = 0;
  const start = micros();
  const until = start + request.seconds * 1e6;
  await each(request.workers, async (worker) => {
    while (micros() < until) {
      let began = micros();
      let lock;
      try {
        lock = await library.lock(key(request, worker), request.ttl_ms);
      } catch {
        errors += 1;
        continue;
      }
      acquire.push(micros() - began);
      began = micros();
      await lock.release().catch(() => (errors += 1));
      release.push(micros() - began);
    }
  });
  return {
    cycles: release.length,
    seconds: (micros() - start) / 1e6,
    errors,
    acquire_us: percentiles(acquire),
    release_us: percentiles(release),
  };
}

async function handover(library, request) {
  const gaps = [];
  let released = 0;
  const until = micros() + request.seconds * 1e6;
  await each(request.workers, async () => {
    while (micros() < until) {
      let lock;
      try {
        lock = await library.lock(key(request, 0), request.ttl_ms);
      } catch {
        continue;
      }
      if (released > 0) gaps.push(micros() - released);
      released = 0;
      await sleep(2);
      released = micros();
      await lock.release().catch(() => {});
      await sleep(20);
    }
  });
  return { gap_us: percentiles(gaps) };
}

async function renew(library, request) {
  const began = micros();
  const locks = new Array(request.workers);
  await each(AT_ONCE, async (worker) => {
    for (let number = worker; number < request.workers; number += AT_ONCE) {
      locks[number] = await library.lock(key(request, number), request.ttl_ms).catch(() => undefined);
    }
  });
  say({ held: locks.filter(Boolean).length, seconds: (micros() - began) / 1e6 });
  let lost = 0;
  let renewals = 0;
  const until = micros() + request.seconds * 1e6;
  while (micros() < until) {
    const next = Math.min(micros() + request.interval_ms * 1e3, until);
    await each(AT_ONCE, async (worker) => {
      for (let number = worker; number < request.workers; number += AT_ONCE) {
        if (!locks[number]) continue;
        try {
          await locks[number].extend();
          renewals += 1;
        } catch {
          locks[number] = undefined;
          lost += 1;
        }
      }
    });
    await sleep(Math.max(next - micros(), 0) / 1e3);
  }
  return { lost, renewals, done: true };
}

// The signal of `using` is aborted when an extension fails.
async function lost(library, request) {
  let noticed = false;
  let by = "";
  try {
    await library.using(key(request, 0), request.ttl_ms, async (signal) => {
      say({ held: true });
      const until = micros() + request.seconds * 1e6;
      while (micros() < until && !signal.aborted) await sleep(5);
      noticed = signal.aborted;
      by = "signal aborted";
      say({ noticed, by });
    });
  } catch {
    // The release on stopped servers fails.
  }
  return { done: true };
}

async function take(library, request) {
  for (;;) {
    try {
      await library.lock(key(request, 0), request.ttl_ms);
      return { held: true };
    } catch {
      // Another attempt.
    }
  }
}

async function stale(library, request) {
  const lock = await library.lock(key(request, 0), request.ttl_ms);
  say({ held: true });
  await sleep(request.seconds * 1e3);
  await lock.release().catch(() => {});
  return { done: true };
}

// One extension after a while.
async function extension(library, request) {
  const lock = await library.lock(key(request, 0), request.ttl_ms);
  say({ held: true });
  await sleep(request.seconds * 1e3);
  const extended = await lock.extend().then(() => true, () => false);
  return { extended, done: true };
}

// The release of a lock that was not acquired.
async function foreign(library, request) {
  await library.foreign(key(request, 0), request.ttl_ms).catch(() => {});
  return { done: true };
}

async function several(library, request) {
  await library.several.lock([key(request, 0), key(request, 1)], request.ttl_ms);
  return { held: true, by: library.several.by };
}

const work = { cycles, handover, renew, lost, hold: take, take, stale, extension, foreign, several };
const open = libraries[process.argv[2]];
if (!open) {
  console.error("error: say redlock or redlock-universal");
  process.exit(2);
}
const opened = new Map();
for await (const line of createInterface({ input: process.stdin })) {
  const request = { workers: 1, ...JSON.parse(line) };
  const quorum = request.nodes.join();
  if (!opened.has(quorum)) opened.set(quorum, open(request.nodes));
  say(work[request.do] ? await work[request.do](opened.get(quorum), request) : { unsupported: true });
}
process.exit(0);
