/* Gives one process the clocks of a machine that was suspended. Loaded with LD_PRELOAD.
 *
 * Linux stops CLOCK_MONOTONIC while it is suspended; CLOCK_BOOTTIME and CLOCK_REALTIME continue. The lab stops the process
 * with SIGSTOP, which stops no clock, and adds the duration to `lag` in a file that this library maps. Here CLOCK_MONOTONIC
 * and its variants are late by `lag`, for the two calls through which Rust uses them: clock_gettime, and a wait on a futex
 * until an absolute time. epoll_wait returns after SIGCONT, and its caller reads the clock again. A timer on CLOCK_BOOTTIME
 * needs no change. sleep and nanosleep are not covered. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(time_t) == 8, "a 64-bit time_t");

/* The content of the file. */
struct machine {
    _Atomic int64_t lag;    /* how long the machine was suspended, in nanoseconds; written by the lab */
    _Atomic uint64_t reads; /* how often the late clock was read; the lab checks that it grows */
};

/* Without the file the clock is not late and no read is counted for the lab, which then reports an error. */
static struct machine never_suspended;
static struct machine *machine = &never_suspended;

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static long (*real_syscall)(long, ...);

/* Other libraries may read the clock before this one is initialized, so this is called by every function here. */
static void find_real_functions(void) {
    if (!real_clock_gettime) {
        real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    }
    if (!real_syscall) {
        real_syscall = dlsym(RTLD_NEXT, "syscall");
    }
}

__attribute__((constructor)) static void map_machine(void) {
    find_real_functions();
    const char *path = getenv("REDISLEASE_LAB_MACHINE");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) {
        return;
    }
    void *mapped = mmap(NULL, sizeof *machine, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) {
        machine = mapped;
    }
}

static int64_t nanoseconds(const struct timespec *time) {
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

static void add(struct timespec *time, int64_t duration) {
    int64_t sum = nanoseconds(time) + duration;
    int64_t rest = sum % 1000000000;
    time->tv_nsec = rest < 0 ? rest + 1000000000 : rest;
    time->tv_sec = (sum - time->tv_nsec) / 1000000000;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    find_real_functions();
    int failed = real_clock_gettime(clock, now);
    int stops = clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_MONOTONIC_RAW;
    if (!failed && stops) {
        atomic_fetch_add(&machine->reads, 1);
        add(now, -atomic_load(&machine->lag));
    }
    return failed;
}

/* Waits on a futex until `deadline` of the late clock. A suspend during the wait makes it longer for the kernel. */
static long futex_wait_until(const long *args, const struct timespec *deadline) {
    for (;;) {
        struct timespec until = *deadline;
        add(&until, atomic_load(&machine->lag));
        long result = real_syscall(SYS_futex, args[0], args[1], args[2], &until, args[4], args[5]);
        if (result != -1 || errno != ETIMEDOUT) {
            return result;
        }
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (nanoseconds(&now) >= nanoseconds(deadline)) {
            errno = ETIMEDOUT;
            return -1;
        }
    }
}

long syscall(long number, ...) {
    find_real_functions();
    long args[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; i++) {
        args[i] = va_arg(rest, long);
    }
    va_end(rest);
    /* FUTEX_CLOCK_REALTIME would be part of this value. */
    int on_monotonic = (args[1] & ~FUTEX_PRIVATE_FLAG) == FUTEX_WAIT_BITSET;
    if (number == SYS_futex && on_monotonic && args[3]) {
        return futex_wait_until(args, (const struct timespec *)args[3]);
    }
    return real_syscall(number, args[0], args[1], args[2], args[3], args[4], args[5]);
}
