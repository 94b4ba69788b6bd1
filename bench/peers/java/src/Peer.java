import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.IntConsumer;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * The Java library of the comparison, Redisson: `redlock` is RedissonRedLock on all servers, `fenced` is RFencedLock on the first
 * one. Requests on standard input, answers on standard output: one JSON object a line.
 */
public final class Peer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private final boolean fenced;
    /** Without a lease time Redisson renews its locks. The lease time is a setting of the client. */
    private final Map<String, List<RedissonClient>> clients = new HashMap<>();

    private Peer(boolean fenced) {
        this.fenced = fenced;
    }

    private List<RedissonClient> clients(JsonNode request) {
        return clients.computeIfAbsent(request.get("nodes") + " " + request.get("ttl_ms"), quorum -> {
            List<RedissonClient> opened = new ArrayList<>();
            for (JsonNode node : request.get("nodes")) {
                Config config = new Config();
                config.setLockWatchdogTimeout(request.get("ttl_ms").asLong());
                config.useSingleServer().setAddress("redis://" + node.asText());
                opened.add(Redisson.create(config));
                if (fenced) {
                    break;
                }
            }
            return opened;
        });
    }

    private RLock lock(List<RedissonClient> clients, JsonNode request, int worker) {
        String key = request.get("prefix").asText() + "-" + worker;
        if (fenced) {
            return clients.get(0).getFencedLock(key);
        }
        return new RedissonRedLock(clients.stream().map(client -> client.getLock(key)).toArray(RLock[]::new));
    }

    /** Returns the fencing token, or null. */
    private static Long acquire(RLock lock) {
        if (lock instanceof RFencedLock one) {
            return one.lockAndGetToken();
        }
        lock.lock();
        return null;
    }

    private static Map<String, Object> held(Long token) {
        return token == null ? Map.of("held", true) : Map.of("held", true, "token", token);
    }

    private static void each(int workers, IntConsumer work) throws InterruptedException {
        List<Thread> threads = new ArrayList<>();
        for (int worker = 0; worker < workers; worker++) {
            int number = worker;
            Thread thread = new Thread(() -> work.accept(number));
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private static Map<String, Object> percentiles(List<Long> times) {
        Long first = times.isEmpty() ? null : times.get(0);
        List<Long> sorted = new ArrayList<>(times);
        Collections.sort(sorted);
        Map<String, Object> figures = new HashMap<>();
        for (int percent : new int[] {50, 99}) {
            int place = Math.min(sorted.size() * percent / 100, sorted.size() - 1);
            figures.put("p" + percent, sorted.isEmpty() ? null : sorted.get(place) / 1e3);
        }
        figures.put("first", first == null ? null : first / 1e3);
        figures.put("count", sorted.size());
        return figures;
    }

    private Object cycles(JsonNode request) throws InterruptedException {
        List<RedissonClient> clients = clients(request);
        List<Long> acquire = Collections.synchronizedList(new ArrayList<>());
        List<Long> release = Collections.synchronizedList(new ArrayList<>());
        AtomicInteger errors = new AtomicInteger();
        long start = System.nanoTime();
        long until = start + (long) (request.get("seconds").asDouble() * 1e9);
        each(request.get("workers").asInt(), worker -> {
            RLock lock = lock(clients, request, worker);
            while (System.nanoTime() < until) {
                try {
                    long began = System.nanoTime();
                    acquire(lock);
                    acquire.add(System.nanoTime() - began);
                    began = System.nanoTime();
                    lock.unlock();
                    release.add(System.nanoTime() - began);
                } catch (RuntimeException error) {
                    errors.incrementAndGet();
                }
            }
        });
        return Map.of("cycles", release.size(), "seconds", (System.nanoTime() - start) / 1e9, "errors", errors.get(),
            "acquire_us", percentiles(acquire), "release_us", percentiles(release));
    }

    private Object handover(JsonNode request) throws InterruptedException {
        List<RedissonClient> clients = clients(request);
        List<Long> gaps = Collections.synchronizedList(new ArrayList<>());
        AtomicLong released = new AtomicLong();
        long until = System.nanoTime() + (long) (request.get("seconds").asDouble() * 1e9);
        each(request.get("workers").asInt(), worker -> {
            RLock lock = lock(clients, request, 0);
            while (System.nanoTime() < until) {
                try {
                    acquire(lock);
                    long at = released.getAndSet(0);
                    if (at > 0) {
                        gaps.add(System.nanoTime() - at);
                    }
                    TimeUnit.MILLISECONDS.sleep(2);
                    released.set(System.nanoTime());
                    lock.unlock();
                    TimeUnit.MILLISECONDS.sleep(20);
                } catch (InterruptedException | RuntimeException error) {
                    // Another attempt.
                }
            }
        });
        return Map.of("gap_us", percentiles(gaps));
    }

    private Object renew(JsonNode request) throws InterruptedException {
        List<RedissonClient> clients = clients(request);
        long began = System.nanoTime();
        int count = request.get("workers").asInt();
        int threads = 64;
        AtomicInteger held = new AtomicInteger();
        RLock[] locks = new RLock[count];
        each(threads, worker -> {
            for (int number = worker; number < count; number += threads) {
                locks[number] = lock(clients, request, number);
                acquire(locks[number]);
                held.incrementAndGet();
            }
        });
        say(Map.of("held", held.get(), "seconds", (System.nanoTime() - began) / 1e9));
        TimeUnit.MILLISECONDS.sleep((long) (request.get("seconds").asDouble() * 1e3));
        // The watchdog renews; the library does not tell how often.
        say(Map.of("renewals", "by the library"));
        AtomicInteger lost = new AtomicInteger();
        each(threads, worker -> {
            for (int number = worker; number < count; number += threads) {
                RLock one = fenced ? locks[number] : clients.get(0).getLock(request.get("prefix").asText() + "-" + number);
                if (!one.isLocked()) {
                    lost.incrementAndGet();
                }
                one.forceUnlock();
            }
        });
        return Map.of("lost", lost.get(), "done", true);
    }

    private Object take(JsonNode request) {
        return held(acquire(lock(clients(request), request, 0)));
    }

    /** A MultiLock has no fencing token, also one over fenced locks. */
    private Object several(JsonNode request) {
        List<RedissonClient> clients = clients(request);
        clients.get(0).getMultiLock(lock(clients, request, 0), lock(clients, request, 1)).lock();
        return Map.of("held", true, "by", fenced ? "MultiLock, without a token" : "MultiLock of two RedLocks");
    }

    private Object stale(JsonNode request) throws InterruptedException {
        RLock lock = lock(clients(request), request, 0);
        say(held(acquire(lock)));
        TimeUnit.MILLISECONDS.sleep((long) (request.get("seconds").asDouble() * 1e3));
        try {
            lock.unlock();
        } catch (RuntimeException error) {
            // The library tells that the lock was lost.
        }
        return Map.of("done", true);
    }

    /** The release of a lock that was not acquired. */
    private Object foreign(JsonNode request) {
        try {
            lock(clients(request), request, 0).unlock();
        } catch (RuntimeException error) {
            // The library tells that it does not hold the lock.
        }
        return Map.of("done", true);
    }

    private static synchronized void say(Object answer) {
        try {
            System.out.println(JSON.writeValueAsString(answer));
            System.out.flush();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Peer peer = new Peer(arguments[0].equals("fenced"));
        Scanner input = new Scanner(System.in);
        while (input.hasNextLine()) {
            JsonNode request = JSON.readTree(input.nextLine());
            say(switch (request.get("do").asText()) {
                case "cycles" -> peer.cycles(request);
                case "handover" -> peer.handover(request);
                case "renew" -> peer.renew(request);
                case "hold", "take" -> peer.take(request);
                case "several" -> peer.several(request);
                case "foreign" -> peer.foreign(request);
                case "stale" -> peer.stale(request);
                default -> Map.of("unsupported", true);
            });
        }
        System.exit(0);
    }
}
