//! Unusual ends: of processes that the command leaves, and of a command that has not started.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, geteuid, kill_process, prlimit};

use crate::support::{Servers, child_of, delete_key, eventually, get, grows, runs};

/// Such a signal has no name, and wait functions that want a name fail on it.
const REAL_TIME: u8 = 40;

#[test]
fn a_real_time_signal_ends_a_command_as_any_other_one() {
    let servers = Servers::start();
    for isolate in ["pid", "none"] {
        let options = ["--lease", "test/real-time", "-q", "--isolate", isolate];
        let run = servers.run(&options, &["sh", "-c", &format!("kill -{REAL_TIME} $$")]);
        assert_eq!(run.finish().0, Some(128 + i32::from(REAL_TIME)), "{isolate}");
        assert!(!servers.is_locked("test/real-time"), "{isolate}");
    }
}

#[test]
fn what_is_left_is_killed_also_beside_an_orphan_that_such_a_signal_has_ended() {
    let servers = Servers::start();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let left = format!("while :; do echo x >> {}; sleep 0.01; done", log.display());
    let text = format!(
        "setsid sh -c '{left}' & (setsid sh -c 'kill -{REAL_TIME} $$' &); while ! [ -s {} ]; do :; done; sleep 0.2",
        log.display()
    );
    let run = servers.run(&["--lease", "test/orphan", "-q", "--isolate", "none"], &["sh", "-c", &text]);
    assert_eq!(run.finish().0, Some(0));
    assert!(!servers.is_locked("test/orphan"));
    assert!(!grows(&log), "something still writes");
}

/// A hook that succeeds when it is asked to stop, and one that the signal ends. The command must not start without a lock, or after
/// the request.
#[test]
fn a_stop_during_the_hook_keeps_the_command_from_starting() {
    let servers = Servers::start();
    let succeeds = "trap 'exit 0' TERM; echo hook; while :; do sleep 0.05; done";
    let ends = "echo hook; exec sleep 1000";
    for (name, hook, is_lost, code) in [
        ("test/hook-signal", succeeds, false, 128 + 15),
        ("test/hook-end", ends, false, 128 + 15),
        ("test/hook-loss", succeeds, true, 76),
        ("test/hook-end-loss", ends, true, 76),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let options = ["--lease", name, "-q", "--on-acquire", hook];
        let mut run = servers.run(&options, &["sh", "-c", "echo started"]).spawn_to(&log);
        let says = |line: &str| fs::read_to_string(&log).unwrap().lines().any(|found| found == line);
        eventually("the hook", || says("hook"));
        if is_lost {
            servers.delete(name);
        } else {
            run.signal(Signal::TERM);
        }
        assert_eq!(run.wait().code(), Some(code), "{name}: {}", fs::read_to_string(&log).unwrap());
        assert!(!says("started"), "{name}");
        assert!(!servers.is_locked(name), "{name}");
    }
}

/// The next holder needs a majority: a key that stays on the third server would make it depend on both others.
#[test]
fn after_a_loss_and_the_end_of_the_command_no_server_has_a_key() {
    let servers = Servers::start();
    for isolate in ["pid", "none"] {
        let options = ["--lease", "test/lost", "-q", "--isolate", isolate];
        let mut run = servers.run(&options, &["sleep", "1000"]).spawn();
        eventually("the lock", || servers.has_key("test/lost") == 3);
        eventually("the loss", || {
            // A renewal between two deletions gives the first server its key back.
            servers.redis[..2].iter().for_each(|server| delete_key(server, "test/lost"));
            run.child.try_wait().unwrap().is_some()
        });
        assert_eq!(run.wait().code(), Some(76), "{isolate}");
        assert_eq!(servers.has_key("test/lost"), 0, "{isolate}");
    }
}

/// Another program can have the lock already, and the command would work beside its own for the whole grace period.
#[test]
fn a_command_whose_keys_are_gone_gets_no_grace_period() {
    const GRACE: Duration = Duration::from_secs(3);
    let servers = Servers::start();
    for (isolate, stops_guard) in [("pid", false), ("none", false), ("pid", true), ("none", true)] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let options = ["--lease", "test/gone", "-q", "--isolate", isolate, "--grace", "3s"];
        let text = "trap '' TERM; echo started; while :; do sleep 0.05; done";
        let mut run = servers.run(&options, &["sh", "-c", text]).spawn_to(&log);
        let says = |text: &str| fs::read_to_string(&log).unwrap().contains(text);
        eventually("the command", || says("started"));
        if stops_guard {
            // It reads nothing then, and its timer is set to a later time.
            kill_process(run.guard().unwrap(), Signal::STOP).unwrap();
        }
        eventually("the loss", || {
            servers.delete("test/gone");
            says("does not hold the lock any more")
        });
        let lost = Instant::now();
        assert_eq!(run.wait().code(), Some(76), "{isolate}, {stops_guard}");
        let worked = lost.elapsed();
        assert!(worked < GRACE / 2, "{isolate}, {stops_guard}: the command worked for {worked:?}");
    }
}

/// The numbers in it belong to other processes, so it proves nothing and names nobody to kill. The end of a namespace is a proof.
#[test]
fn a_proc_of_another_namespace_proves_no_end() {
    let servers = Servers::start();
    let folder = tempfile::tempdir().unwrap();
    for (isolate, is_blind) in [("pid", false), ("none", true)] {
        let lease = format!("test/proc-{isolate}");
        let ready = folder.path().join(isolate).display().to_string();
        // A process that has not left the group yet would be killed with it.
        let text = format!("setsid sh -c 'echo > {ready}; exec sleep 30' & until [ -e {ready} ]; do sleep 0.05; done");
        let inner = servers.run(&["--lease", &lease, "-q", "--isolate", isolate], &["sh", "-c", &text]);
        // Not as the first process, whose end would be that of all.
        let outer = ["--user", "--map-root-user", "--pid", "--fork", "sh", "-c", "\"$@\"; echo code $?", "sh"];
        let (_, out, errors) = inner.under("unshare", &outer).finish();
        if errors.starts_with("unshare: ") {
            return redislease_lab::skipped(&errors);
        }
        assert_eq!(out.trim(), "code 0", "{errors}");
        assert_eq!(errors.contains("/proc shows another PID namespace"), is_blind, "{isolate}: {errors}");
        assert_eq!(servers.is_locked(&lease), is_blind, "{isolate}: {errors}");
    }
}

/// The kernel kills only the command itself with its parent, here the shell.
#[test]
fn without_run_its_guard_kills_the_process_group_of_the_command() {
    let servers = Servers::short();
    let folder = tempfile::tempdir().unwrap();
    for (case, grace, signal) in [(0, "300ms", Signal::KILL), (1, "0", Signal::KILL), (2, "0", Signal::STOP)] {
        let is_killed = |attempt: usize| {
            let log = folder.path().join(format!("{case}-{attempt}"));
            // It ends after a minute if the test fails.
            let text =
                "trap '' TERM; timeout --foreground 60 sh -c 'while :; do echo x >> LOG; sleep 0.01; done'; true";
            let text = text.replace("LOG", &log.display().to_string());
            let options = ["--lease", "test/group", "-q", "--isolate", "none", "--grace", grace];
            let run = servers.run(&options, &["sh", "-c", &text]).spawn();
            eventually("the command", || log.exists());
            let guard = run.guard().unwrap();
            run.signal(signal);
            eventually("the end of the guard", || !runs(guard));
            !grows(&log)
        };
        // On a busy machine, guard and init may not run in time.
        assert!((0..4).any(is_killed), "--grace {grace}, {signal:?} of run: something still writes");
    }
}

/// What the command has left to another process can look at the file before each write, and ask the HTTP server.
#[test]
fn after_an_early_loss_file_and_server_say_that_the_time_is_over() {
    let servers = Servers::start();
    for kills_guard in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (log, asked) = (folder.path().join("log"), folder.path().join("asked"));
        // The stop time and the time of the deadline in ms, and the seconds of this clock.
        let hook = "until [ -e ASKED ]; do echo $(cat $REDISLEASE_DEADLINE_FILE /proc/uptime); sleep 0.05; done";
        let hook = hook.replace("ASKED", asked.to_str().unwrap());
        let options = ["--lease", "test/early", "--grace", "2s", "--listen", "127.0.0.1:0", "--on-lost", &hook];
        let mut run = servers.run(&options, &["sh", "-c", "echo ready; exec sleep 1000"]).spawn_to(&log);
        let lines = || fs::read_to_string(&log).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
        eventually("the command", || lines().iter().any(|line| line == "ready"));
        let address = lines().iter().find_map(|line| Some(line.split_once("http://")?.1.to_owned())).unwrap();
        assert!(get(&address, "/active").starts_with("HTTP/1.1 200"));
        if kills_guard {
            kill_process(run.guard().unwrap(), Signal::KILL).unwrap();
        } else {
            servers.delete("test/early");
        }
        // A thread of its own writes the file.
        let hook = || lines().into_iter().filter(|line| line.contains("stopBoottimeMs")).collect::<Vec<_>>();
        eventually("the hook", || hook().len() > 5);
        let answers = ["/active", "/", "/lease"].map(|path| get(&address, path));
        let file = hook().pop().unwrap();
        fs::write(&asked, "").unwrap();
        assert_eq!(run.wait().code(), Some(76));
        assert!(answers[0].starts_with("HTTP/1.1 503") && answers[1].ends_with(r#"{"name":""}"#), "{answers:?}");
        assert!(answers[2].contains(r#""active":false"#) && answers[2].contains(r#""validForMs":0"#), "{answers:?}");
        let number =
            |name: &str| -> f64 { file.split_once(name).unwrap().1.split([',', '}']).next().unwrap().parse().unwrap() };
        let uptime = file.rsplit('}').next().unwrap().split_whitespace().next().unwrap().parse::<f64>().unwrap();
        for time in ["\"stopBoottimeMs\":", "\"deadlineBoottimeMs\":"] {
            assert!(number(time) <= uptime * 1000.0, "{kills_guard}: {file}");
        }
    }
}

/// It has 30 s, and would delay the end of a service for so long.
#[test]
fn a_signal_reaches_the_hook_of_a_loss() {
    let servers = Servers::start();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let hook = "trap 'echo asked; exit 0' TERM; echo hook; while :; do sleep 0.05; done";
    let options = ["--lease", "test/lost-hook", "-q", "--mode", "service", "--on-lost", hook];
    let mut run = servers.run(&options, &["sh", "-c", "echo started; exec sleep 1000"]).spawn_to(&log);
    let says = |line: &str| fs::read_to_string(&log).unwrap().lines().any(|found| found == line);
    eventually("the command", || says("started"));
    servers.delete("test/lost-hook");
    eventually("the hook", || says("hook"));
    let began = Instant::now();
    run.signal(Signal::TERM);
    assert_eq!(run.wait().code(), Some(76), "{}", fs::read_to_string(&log).unwrap());
    assert!(says("asked"), "{}", fs::read_to_string(&log).unwrap());
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}: less than the time of the hook", began.elapsed());
}

/// A shell starts a program beside it and becomes `redislease run`, as the entry point of a container does.
#[test]
fn a_process_that_was_there_before_is_left_alone_and_delays_nothing() {
    let servers = Servers::start();
    let folder = tempfile::tempdir().unwrap();
    let beside = folder.path().join("pid");
    let inner = servers.run(&["--lease", "test/beside", "--isolate", "none"], &["true"]);
    let text = format!("sleep 60 & echo $! > {}; exec \"$@\"", beside.display());
    let began = Instant::now();
    let status = inner.under("sh", &["-c", &text, "sh"]).spawn().wait();
    let took = began.elapsed();
    let pid = fs::read_to_string(&beside).unwrap().trim().parse().ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, Signal::KILL).expect("it still runs");
    assert_eq!(status.code(), Some(0));
    assert!(!servers.is_locked("test/beside"), "the lock is free at once");
    assert!(took < Duration::from_secs(4), "{took:?}: less than the span in which left processes are waited for");
}

/// With no free file descriptor, `run` cannot read `/proc`, and does not know whether something is left.
#[test]
fn a_proc_that_cannot_be_read_proves_no_end_beside_a_process_that_was_there_before() {
    let servers = Servers::start();
    let folder = tempfile::tempdir().unwrap();
    let [beside, left, go] = ["beside", "left", "go"].map(|name| folder.path().join(name));
    let text = "setsid sh -c 'echo $$ > LEFT; exec sleep 60' & until [ -e GO ]; do sleep 0.05; done";
    let text = text.replace("LEFT", &left.display().to_string()).replace("GO", &go.display().to_string());
    let inner = servers.run(&["--lease", "test/blind", "--isolate", "none"], &["sh", "-c", &text]);
    let text = format!("sleep 60 & echo $! > {}; exec \"$@\"", beside.display());
    let mut run = inner.under("sh", &["-c", &text, "sh"]).spawn_to(&folder.path().join("log"));
    let pid = |file: &Path| fs::read_to_string(file).ok()?.trim().parse().ok().and_then(Pid::from_raw);
    eventually("the command", || pid(&left).is_some());
    let limit = Rlimit { current: Some(3), maximum: Some(3) };
    prlimit(Some(run.pid()), Resource::Nofile, limit).unwrap();
    fs::write(&go, "").unwrap();
    let code = run.wait().code();
    let is_locked = servers.is_locked("test/blind");
    let is_left = runs(pid(&left).unwrap());
    for file in [beside, left] {
        let _ = kill_process(pid(&file).unwrap(), Signal::KILL);
    }
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    assert_eq!((code, is_left, is_locked), (Some(0), true, true), "{log}");
    assert!(log.contains("processes of the command are left"), "{log}");
}

#[test]
fn the_end_of_a_helper_process_is_an_error_or_a_loss() {
    let servers = Servers::start();
    for (name, kills_init, code, text) in [
        ("test/init", true, 125, "a helper process was killed"),
        ("test/guard", false, 76, "the guard process has reached its deadline, or was killed"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut run = servers.run(&["--lease", name], &["sleep", "1000"]).spawn_to(&log);
        let command = || run.guard().and_then(child_of).and_then(child_of);
        eventually("the command", || command().is_some());
        let guard = run.guard().unwrap();
        let killed = if kills_init { child_of(guard).unwrap() } else { guard };
        kill_process(killed, Signal::KILL).unwrap();
        let status = run.wait().code();
        let output = fs::read_to_string(&log).unwrap();
        assert_eq!(status, Some(code), "{output}");
        assert!(output.contains(text), "{output}");
        assert!(!servers.is_locked(name), "nothing of the command is left");
    }
}

#[test]
fn a_command_that_was_never_executed_does_not_keep_the_lock() {
    let servers = Servers::start();
    for (command, hook, code) in [("/absent", "true", 127), ("/etc/passwd", "true", 126), ("true", "exit 3", 125)] {
        for isolate in ["pid", "none"] {
            let options =
                ["--lease", "test/never", "-q", "--hold-at-least", "3s", "--isolate", isolate, "--on-acquire", hook];
            assert_eq!(servers.run(&options, &[command]).finish().0, Some(code), "{command}");
            assert!(!servers.is_locked("test/never"), "{command}, {isolate}");
        }
    }
    // Its own code is that of a command that was not found.
    let options = ["--lease", "test/never", "-q", "--hold-at-least", "3s"];
    assert_eq!(servers.run(&options, &["sh", "-c", "exit 127"]).finish().0, Some(127));
    assert!(servers.is_locked("test/never"));
}

#[test]
fn the_folder_of_a_killed_run_is_removed_by_the_next_one() {
    let servers = Servers::short();
    let folder = tempfile::tempdir().unwrap();
    let count = || fs::read_dir(folder.path()).unwrap().count();
    let run = |command: &[&str]| {
        let run = servers.run(&["--lease", "test/folder", "-q", "--wait", "20s"], command);
        run.env("XDG_RUNTIME_DIR", folder.path())
    };
    let mut killed = run(&["sleep", "1000"]).spawn();
    eventually("the folder", || count() == 1);
    let guard = || killed.guard();
    eventually("the guard", || guard().is_some());
    let guard = guard().unwrap();
    killed.signal(Signal::KILL);
    killed.wait();
    eventually("the end of the guard", || rustix::process::test_kill_process(guard).is_err());
    assert_eq!(count(), 1);
    assert_eq!(run(&["true"]).finish().0, Some(0));
    assert_eq!(count(), 0);
}

/// Nobody else waits for the orphans of a container.
#[test]
fn the_first_process_reaps_orphans_while_the_command_works() {
    if !geteuid().is_root() {
        return redislease_lab::skipped("only root can start a first process");
    }
    let servers = Servers::start();
    let folder = tempfile::tempdir().unwrap();
    for isolate in ["pid", "none"] {
        let log = folder.path().join(isolate);
        let text = "for n in 1 2 3; do (setsid sh -c 'echo orphan' &); done; echo command; exec sleep 1000";
        let inner = servers.run(&["--lease", "test/reap", "-q", "--isolate", isolate], &["sh", "-c", text]);
        let run = inner.under("unshare", &["--pid", "--fork", "--kill-child", "--mount-proc", "--"]).spawn_to(&log);
        let output = || fs::read_to_string(&log).unwrap();
        eventually("the orphans", || output().matches("orphan").count() == 3 && output().contains("command"));
        // One that nobody has waited for is still in these lists.
        let first = child_of(run.pid()).unwrap();
        eventually("guard, init and command alone", || descendants(first) == 3);
        assert!(runs(first) && servers.is_locked("test/reap"), "{}", output());
        drop(run);
        eventually("the end of the lock", || !servers.is_locked("test/reap"));
    }
}

fn descendants(pid: Pid) -> usize {
    let pid = pid.as_raw_nonzero();
    let lists = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = lists.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children: Vec<Pid> = lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect::<Vec<_>>())
        .collect();
    children.len() + children.into_iter().map(descendants).sum::<usize>()
}
