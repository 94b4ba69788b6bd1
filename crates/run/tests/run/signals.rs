//! What the command inherits from the program that starts `run`.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::support::{Run, Servers, child_of, eventually};

#[test]
fn signals_that_were_ignored_stay_ignored_as_under_nohup() {
    let servers = Servers::start();
    let text = "trap '' HUP TSTP; exec \"$@\"";
    let inner = servers.run(&["--lease", "test/nohup", "-q"], &["sh", "-c", "grep SigIgn /proc/$$/status"]);
    let (_, text, _) = inner.under("sh", &["-c", text, "sh"]).finish();
    // The test itself can run with more ignored signals, as each process in the background does.
    let mask = u64::from_str_radix(text.trim().trim_start_matches("SigIgn:").trim(), 16).unwrap();
    let ignored = |signal: Signal| mask & (1 << (signal.as_raw() - 1)) != 0;
    assert!(ignored(Signal::HUP) && ignored(Signal::TSTP), "{text}");
}

/// Also in the moment in which a helper process begins: a signal for the whole group must not end it before the command.
#[test]
fn a_signal_to_the_group_at_any_moment_is_one_to_the_command() {
    let servers = Servers::start();
    let mut codes = Vec::new();
    for round in 0..10 {
        let lease = format!("test/moment-{round}");
        let isolate = if round % 2 == 0 { "none" } else { "pid" };
        let mut run = servers.run(&["--lease", &lease, "-q", "--isolate", isolate], &["sleep", "600"]).spawn();
        // The guard starts when the lock is acquired.
        eventually("the lock", || servers.is_locked(&lease));
        // A shell may have started this test with SIGINT ignored.
        eventually("its end", || {
            for _ in 0..30 {
                kill_process_group(run.pid(), Signal::TERM).unwrap();
                std::thread::sleep(Duration::from_micros(300));
            }
            run.child.try_wait().unwrap().is_some()
        });
        codes.push((run.wait().code(), run.errors()));
    }
    assert!(codes.iter().all(|(code, _)| *code == Some(143)), "{codes:?}");
}

/// TERM, INT and the signal of a terminal have tests of their own.
#[test]
fn each_other_signal_for_the_command_reaches_it() {
    let servers = Servers::start();
    let folder = tempfile::tempdir().unwrap();
    let signals = [
        ("HUP", Signal::HUP),
        ("QUIT", Signal::QUIT),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("ALRM", Signal::ALARM),
        ("CONT", Signal::CONT),
        ("WINCH", Signal::WINCH),
    ];
    let traps: String = signals.iter().map(|(name, _)| format!("trap 'echo got {name}' {name}; ")).collect();
    // The signals end `sleep` too.
    let text = format!("ulimit -c 0; {traps} echo ready; while :; do sleep 0.05; done");
    for isolate in ["pid", "none"] {
        let log = folder.path().join(isolate);
        let options = ["--lease", "test/each", "-q", "--isolate", isolate];
        // A shell may have started this test with signals ignored.
        let inner = servers.run(&options, &["sh", "-c", &text]).under("env", &["--default-signal"]);
        let run = inner.spawn_to(&log);
        let says = |line: &str| fs::read_to_string(&log).unwrap().lines().any(|found| found == line);
        eventually("the command", || says("ready"));
        for (name, signal) in signals {
            run.signal(signal);
            eventually(&format!("{name} with --isolate {isolate}"), || says(&format!("got {name}")));
        }
    }
}

/// Somebody has stopped it for a reason.
#[test]
fn a_stopped_command_continues_only_at_a_signal_that_asks_it_to_end() {
    let servers = Servers::start();
    for isolate in ["pid", "none"] {
        let options = ["--lease", "test/stopped", "-q", "--isolate", isolate];
        let text = "trap 'exit 5' TERM; trap : USR1 USR2; while :; do sleep 0.05; done";
        let inner = servers.run(&options, &["sh", "-c", text]).under("env", &["--default-signal"]);
        let mut run = inner.spawn();
        let field = |pid: Pid, name: &str| {
            let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
            status.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned())).unwrap_or_default()
        };
        let mask = |pid, name: &str| u64::from_str_radix(&field(pid, name), 16).unwrap_or_default();
        let [usr1, usr2] = [Signal::USR1, Signal::USR2].map(|signal| 1 << (signal.as_raw() - 1));
        let command = || run.guard().and_then(child_of).and_then(child_of);
        eventually("the command", || command().is_some_and(|pid| mask(pid, "SigCgt:") & usr2 != 0));
        let command = command().unwrap();
        kill_process(command, Signal::STOP).unwrap();
        eventually("the stop", || field(command, "State:").starts_with('T'));
        for (signal, pending) in [(Signal::USR1, usr1), (Signal::USR2, usr1 | usr2)] {
            run.signal(signal);
            // A command that continues takes its signals.
            eventually(&format!("{signal:?} with --isolate {isolate}"), || {
                mask(command, "ShdPnd:") & pending == pending && field(command, "State:").starts_with('T')
            });
        }
        run.signal(Signal::TERM);
        assert_eq!(run.wait().code(), Some(5), "{isolate}");
    }
}

/// Starts a program with all signals at their defaults. The C library hides the signals 32 and 33, so this asks the kernel.
const WITH_DEFAULTS: &str = "for my $signal (1..64) { my $action = pack('Q4', 0, 0, 0, 0); syscall(CALL, $signal, $action, 0, 8) } \
                             exec @ARGV";

/// With a blocked SIGCHLD and a blocked real-time signal too.
#[test]
fn the_command_inherits_all_signals_as_they_were() {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    if !status.lines().any(|line| line == "Seccomp:\t0") {
        return redislease_lab::skipped("the signals of a command: under a seccomp filter, two more are ignored");
    }
    let servers = Servers::start();
    let call = if cfg!(target_arch = "x86_64") { "13" } else { "134" };
    let show = ["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"];
    let block = "use POSIX; sigprocmask(SIG_BLOCK, POSIX::SigSet->new(10, 17, 40)); exec @ARGV";
    let defaults = WITH_DEFAULTS.replace("CALL", call);
    let lines = |run: &Run| run.under("perl", &["-e", &defaults, "perl", "-e", block]).finish().1;
    let mut alone = Command::new(show[0]);
    alone.args(&show[1..]);
    let expected = lines(&Run(alone));
    assert!(expected.contains("SigBlk:\t0000008000010200\nSigIgn:\t0000000000000000"), "{expected}");
    for isolate in ["pid", "none"] {
        let run = servers.run(&["--lease", "test/signals", "-q", "--isolate", isolate], &show);
        assert_eq!(lines(&run), expected, "{isolate}");
    }
}

/// Without the signal, nothing else shows that the hook has ended.
#[test]
fn a_hook_is_not_waited_for_in_vain_when_sigchld_was_blocked() {
    let servers = Servers::short();
    let inner = servers.run(&["--lease", "test/chld", "-q", "--on-lost", "true"], &["sleep", "600"]);
    let block = "use POSIX; sigprocmask(SIG_BLOCK, POSIX::SigSet->new(17)); exec @ARGV";
    let mut run = inner.under("perl", &["-e", block]).spawn();
    eventually("the guard", || run.guard().is_some());
    servers.delete("test/chld");
    let began = Instant::now();
    assert_eq!(run.wait().code(), Some(76));
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
}

/// The helper processes have a higher priority than the command, which gets that of `run`.
#[test]
fn the_command_inherits_the_priority() {
    let servers = Servers::start();
    for isolate in ["pid", "none"] {
        let run = servers.run(&["--lease", "test/nice", "-q", "--isolate", isolate], &["nice"]);
        let nice = |adjustment: &str| {
            let (_, out, _) = run.under("nice", &["-n", adjustment]).finish();
            out.trim().parse::<i32>().unwrap()
        };
        assert_eq!(nice("5") - nice("0"), 5, "{isolate}");
    }
}

/// systemd names `run`. The command compares these variables with its own process ID; a hook is not the service.
#[test]
fn the_command_is_the_process_that_systemd_names() {
    let servers = Servers::start();
    let as_systemd = "export WATCHDOG_PID=$$ LISTEN_PID=$$ LISTEN_PIDFDID=7; exec 3< /dev/null; exec \"$@\"";
    let text = "[ $WATCHDOG_PID = $$ ] && [ $LISTEN_PID = $$ ] && [ -z \"$LISTEN_PIDFDID\" ] && [ -e /proc/$$/fd/3 ]";
    let hook = "[ $WATCHDOG_PID != $$ ] && [ $LISTEN_PID != $$ ]";
    for isolate in ["pid", "none"] {
        let options = ["--lease", "test/systemd", "-q", "--isolate", isolate, "--on-acquire", hook];
        let run = servers.run(&options, &["sh", "-c", text]);
        let (code, _, err) = run.under("sh", &["-c", as_systemd, "sh"]).finish();
        assert_eq!(code, Some(0), "{isolate}: {err}");
        // Those of another process stay as they are.
        let run = servers.run(&options, &["sh", "-c", "echo $WATCHDOG_PID $LISTEN_PID"]);
        let (_, out, err) = run.under("env", &["WATCHDOG_PID=1", "LISTEN_PID=x"]).finish();
        assert_eq!(out, "1 x\n", "{isolate}: {err}");
    }
}
