/* The program of the containers that the lab makes: the workload, and the sandbox of each pod. It works until SIGTERM,
 * finishes its work for STOP_SECONDS, and exits. It prints what it does, so `kubectl logs` shows it, and the token that it
 * has from `redislease run`. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void say(const char *what) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    printf("%ld.%03ld %s\n", (long)now.tv_sec, now.tv_nsec / 1000000, what);
    fflush(stdout);
}

int main(void) {
    sigset_t stop;
    int signal;
    /* The first process of a container ignores a signal that it does not handle. */
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    const char *token = getenv("REDISLEASE_TOKEN");
    if (token)
        printf("token %s\n", token);
    say("started");
    sigwait(&stop, &signal);
    say("stopping");
    const char *seconds = getenv("STOP_SECONDS");
    struct timespec rest = {.tv_sec = seconds ? atoi(seconds) : 0};
    while (nanosleep(&rest, &rest) != 0) {
    }
    say("stopped");
    return 0;
}
