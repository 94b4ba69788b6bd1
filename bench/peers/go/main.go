// Command peer runs the Go libraries of the comparison: redsync and bsm/redislock.
//
//	peer redsync | redsync-failfast | redislock     # requests on standard input, answers on standard output: one JSON object a line
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type request struct {
	Do         string   `json:"do"`
	Nodes      []string `json:"nodes"`
	Workers    int      `json:"workers"`
	Seconds    float64  `json:"seconds"`
	TTLMs      int      `json:"ttl_ms"`
	IntervalMs int      `json:"interval_ms"`
	Prefix     string   `json:"prefix"`
}

func (r request) ttl() time.Duration      { return time.Duration(r.TTLMs) * time.Millisecond }
func (r request) duration() time.Duration { return time.Duration(r.Seconds * float64(time.Second)) }
func (r request) key(worker int) string   { return fmt.Sprintf("%s-%d", r.Prefix, worker) }

// held is a lock that was acquired.
type held interface {
	release() error
	extend() error
}

// library acquires one lock: it makes the attempts that the library makes by default.
type library struct {
	lock func(key string, ttl time.Duration) (held, error)
	// named acquires a lock for an owner with this name, if the library allows to choose it.
	named func(key, name string, ttl time.Duration) (held, error)
	// foreign releases a lock that was not acquired, if the library allows it.
	foreign func(key string, ttl time.Duration)
}

type redsyncLock struct{ mutex *redsync.Mutex }

func (l redsyncLock) release() error { _, err := l.mutex.Unlock(); return err }
func (l redsyncLock) extend() error {
	ok, err := l.mutex.Extend()
	if err == nil && !ok {
		err = fmt.Errorf("not extended")
	}
	return err
}

func newRedsync(nodes []string) library { return redsyncWith(nodes) }

// newRedsyncFailFast does not wait for servers that do not answer.
func newRedsyncFailFast(nodes []string) library {
	return redsyncWith(nodes, redsync.WithFailFast(true))
}

func redsyncWith(nodes []string, options ...redsync.Option) library {
	var pools []redsyncredis.Pool
	for _, node := range nodes {
		pools = append(pools, goredis.NewPool(redis.NewClient(&redis.Options{Addr: node})))
	}
	sync := redsync.New(pools...)
	open := func(key string, ttl time.Duration, more ...redsync.Option) *redsync.Mutex {
		return sync.NewMutex(key, append(append([]redsync.Option{redsync.WithExpiry(ttl)}, options...), more...)...)
	}
	return library{
		lock: func(key string, ttl time.Duration) (held, error) {
			mutex := open(key, ttl)
			return redsyncLock{mutex}, mutex.Lock()
		},
		named: func(key, name string, ttl time.Duration) (held, error) {
			mutex := open(key, ttl, redsync.WithTries(1), redsync.WithGenValueFunc(func() (string, error) { return name, nil }))
			return redsyncLock{mutex}, mutex.Lock()
		},
		foreign: func(key string, ttl time.Duration) {
			_, _ = open(key, ttl, redsync.WithValue("of nobody")).Unlock()
		},
	}
}

type redislockLock struct {
	lock *redislock.Lock
	ttl  time.Duration
}

func (l redislockLock) release() error { return l.lock.Release(context.Background()) }
func (l redislockLock) extend() error  { return l.lock.Refresh(context.Background(), l.ttl, nil) }

// newRedislock uses the first server only: the library is for one server.
func newRedislock(nodes []string) library {
	client := redislock.New(redis.NewClient(&redis.Options{Addr: nodes[0]}))
	return library{
		lock: func(key string, ttl time.Duration) (held, error) {
			// The documentation's example of a retry; without it the first refusal is an error.
			options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
			lock, err := client.Obtain(context.Background(), key, ttl, options)
			return redislockLock{lock, ttl}, err
		},
		named: func(key, name string, ttl time.Duration) (held, error) {
			lock, err := client.Obtain(context.Background(), key, ttl, &redislock.Options{Token: name})
			return redislockLock{lock, ttl}, err
		},
	}
}

func percentiles(times []time.Duration) map[string]any {
	var first any
	if len(times) > 0 {
		first = float64(times[0].Nanoseconds()) / 1e3
	}
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	at := func(percent int) any {
		if len(times) == 0 {
			return nil
		}
		return float64(times[min(len(times)*percent/100, len(times)-1)].Nanoseconds()) / 1e3
	}
	return map[string]any{"first": first, "p50": at(50), "p99": at(99), "count": len(times)}
}

// each runs work in this many goroutines and waits for them.
func each(workers int, work func(worker int)) {
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() { work(worker) })
	}
	group.Wait()
}

func cycles(lock library, r request) any {
	var guard sync.Mutex
	var acquire, release []time.Duration
	var errors atomic.Int64
	start := time.Now()
	until := start.Add(r.duration())
	each(r.Workers, func(worker int) {
		var acquired, released []time.Duration
		for time.Now().Before(until) {
			began := time.Now()
			lock, err := lock.lock(r.key(worker), r.ttl())
			if err != nil {
				errors.Add(1)
				continue
			}
			acquired = append(acquired, time.Since(began))
			began = time.Now()
			if lock.release() != nil {
				errors.Add(1)
			}
			released = append(released, time.Since(began))
		}
		guard.Lock()
		defer guard.Unlock()
		acquire, release = append(acquire, acquired...), append(release, released...)
	})
	return map[string]any{
		"cycles": len(release), "seconds": time.Since(start).Seconds(), "errors": errors.Load(),
		"acquire_us": percentiles(acquire), "release_us": percentiles(release),
	}
}

func handover(lock library, r request) any {
	var guard sync.Mutex
	var gaps []time.Duration
	var released atomic.Int64
	start := time.Now()
	until := start.Add(r.duration())
	each(r.Workers, func(int) {
		for time.Now().Before(until) {
			lock, err := lock.lock(r.key(0), r.ttl())
			if err != nil {
				continue
			}
			if at := released.Swap(0); at > 0 {
				guard.Lock()
				gaps = append(gaps, time.Since(start)-time.Duration(at))
				guard.Unlock()
			}
			time.Sleep(2 * time.Millisecond)
			released.Store(int64(time.Since(start)))
			_ = lock.release()
			time.Sleep(20 * time.Millisecond)
		}
	})
	return map[string]any{"gap_us": percentiles(gaps)}
}

func renew(lock library, r request) any {
	began := time.Now()
	locks := make([]held, r.Workers)
	const atOnce = 256
	each(atOnce, func(worker int) {
		for number := worker; number < r.Workers; number += atOnce {
			if one, err := lock.lock(r.key(number), r.ttl()); err == nil {
				locks[number] = one
			}
		}
	})
	count := 0
	for _, one := range locks {
		if one != nil {
			count++
		}
	}
	say(map[string]any{"held": count, "seconds": time.Since(began).Seconds()})
	var lost, renewals atomic.Int64
	until := time.Now().Add(r.duration())
	for time.Now().Before(until) {
		next := time.Now().Add(time.Duration(r.IntervalMs) * time.Millisecond)
		each(atOnce, func(worker int) {
			for number := worker; number < r.Workers; number += atOnce {
				if locks[number] == nil {
					continue
				}
				if locks[number].extend() != nil {
					locks[number] = nil
					lost.Add(1)
				} else {
					renewals.Add(1)
				}
			}
		})
		if next.After(until) {
			next = until
		}
		time.Sleep(time.Until(next))
	}
	return map[string]any{"lost": lost.Load(), "renewals": renewals.Load(), "done": true}
}

func say(answer any) {
	line, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func main() {
	libraries := map[string]func([]string) library{
		"redsync": newRedsync, "redsync-failfast": newRedsyncFailFast, "redislock": newRedislock,
	}
	if len(os.Args) != 2 || libraries[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "error: say redsync, redsync-failfast or redislock")
		os.Exit(2)
	}
	open := map[string]*library{}
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		r := request{Workers: 1}
		if err := json.Unmarshal(input.Bytes(), &r); err != nil {
			panic(err)
		}
		quorum := strings.Join(r.Nodes, ",")
		if open[quorum] == nil {
			opened := libraries[os.Args[1]](r.Nodes)
			open[quorum] = &opened
		}
		lock := *open[quorum]
		switch r.Do {
		case "cycles":
			say(cycles(lock, r))
		case "handover":
			say(handover(lock, r))
		case "renew":
			say(renew(lock, r))
		case "hold", "take":
			for {
				if _, err := lock.lock(r.key(0), r.ttl()); err == nil {
					break
				}
			}
			say(map[string]any{"held": true})
		case "stale":
			held, err := lock.lock(r.key(0), r.ttl())
			say(map[string]any{"held": err == nil})
			time.Sleep(r.duration())
			if err == nil {
				_ = held.release()
			}
			say(map[string]any{"done": true})
		case "extension":
			held, err := lock.lock(r.key(0), r.ttl())
			say(map[string]any{"held": err == nil})
			time.Sleep(r.duration())
			say(map[string]any{"extended": err == nil && held.extend() == nil, "done": true})
		case "foreign":
			if lock.foreign == nil {
				say(map[string]any{"unsupported": true})
				break
			}
			lock.foreign(r.key(0), r.ttl())
			say(map[string]any{"done": true})
		case "prefix":
			if _, err := lock.named(r.key(0), "abc", r.ttl()); err != nil {
				panic(err)
			}
			_, err := lock.named(r.key(0), "ab", r.ttl())
			say(map[string]any{"taken": err == nil, "done": true})
		default:
			say(map[string]any{"unsupported": true})
		}
	}
}
