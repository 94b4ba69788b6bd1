//! What a user of the program sees, without a loss.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use redislease_lab::{pause, resume};
use rustix::process::Signal;

use crate::support::{Running, Servers, ask, eventually, get, grows};

/// Runs a shell script under a lock.
fn script(servers: &Servers, options: &[&str], script: &str) -> (Option<i32>, String, String) {
    let options: Vec<&str> = ["--lease", "test/basics", "--wait", "20s"].iter().chain(options).copied().collect();
    servers.run(&options, &["sh", "-c", script]).finish()
}

#[test]
fn the_exit_code_is_that_of_the_command_in_each_isolation() {
    let servers = Servers::start();
    for isolate in ["pid", "none", "auto"] {
        let code = |text: &str| script(&servers, &["--isolate", isolate], text);
        assert_eq!(code("exit 3").0, Some(3));
        assert_eq!(code("kill -TERM $$").0, Some(143));
        let (code, out, err) = code("kill -KILL $$");
        assert_eq!((code, out.as_str()), (Some(137), ""));
        assert!(err.contains(&format!("isolation {}", if isolate == "none" { "none" } else { "pid" })), "{err}");
        let options = ["--lease", "test/basics", "--isolate", isolate, "-q"];
        assert_eq!(servers.run(&options, &["/absent"]).finish().0, Some(127));
        let (code, _, err) = servers.run(&options, &["/etc/passwd"]).finish();
        assert_eq!(code, Some(126));
        assert!(err.contains("cannot execute /etc/passwd: Permission denied"), "{err}");
    }
    assert!(!servers.is_locked("test/basics"), "released");
}

#[test]
fn where_namespaces_are_forbidden_auto_falls_back_and_pid_is_an_error() {
    let servers = Servers::start();
    let run = |isolate: &str| {
        let inner = servers.run(&["--lease", "test/forbidden", "--isolate", isolate], &["sh", "-c", "exit 6"]);
        let script = "echo 0 > /proc/sys/user/max_pid_namespaces && exec \"$@\"";
        inner.under("unshare", &["--user", "--map-root-user", "sh", "-c", script, "sh"]).finish()
    };
    let (code, _, err) = run("auto");
    if err.starts_with("unshare: ") {
        return redislease_lab::skipped(&err);
    }
    assert_eq!(code, Some(6), "{err}");
    assert!(err.contains("isolation none"), "{err}");
    let (code, _, err) = run("pid");
    assert_eq!(code, Some(125), "{err}");
    assert!(err.contains("--isolate is not possible here: "), "{err}");
    assert!(!servers.is_locked("test/forbidden"), "released");
}

#[test]
fn the_command_finds_token_lease_holder_and_deadline_in_its_environment() {
    let servers = Servers::short();
    let text = "echo $REDISLEASE_TOKEN $REDISLEASE_LEASE $REDISLEASE_HOLDER; cat $REDISLEASE_DEADLINE_FILE; echo; \
                echo $REDISLEASE_DEADLINE_FILE; env | grep -c REDISLEASE_RUN_; cat /proc/uptime";
    let run = servers.run(&["--lease", "test/env", "--owner", "me", "-q"], &["sh", "-c", text]);
    let (code, out, err) = run.env("REDISLEASE_RUN_WAIT", "20s").finish();
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let lines: Vec<&str> = out.lines().collect();
    let [holder, file, path, options, uptime] = lines[..] else { panic!("{out}") };
    let token: u64 = holder.strip_suffix(" test/env me").unwrap().parse().unwrap();
    assert!(file.contains(&format!(r#""token":{token},"#)), "{file}");
    assert_eq!(options, "0", "options can contain passwords");
    assert!(!std::path::Path::new(path).exists(), "removed at the end");
    let number =
        |name: &str| -> f64 { file.split_once(name).unwrap().1.split([',', '}']).next().unwrap().parse().unwrap() };
    let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    let left = number(r#""deadlineBoottimeMs":"#) / 1000.0 - uptime;
    assert!(left > 0.5 && left < 2.0, "{left} s after now");
    assert!(number(r#""remainingMs":"#) < 2000.0);
}

#[test]
fn a_lock_that_another_program_holds_gives_75_or_the_code_of_the_user() {
    let servers = Servers::start();
    let mut holder = servers.run(&["--lease", "test/a", "--owner", "the holder", "-q"], &["cat"]);
    let mut holder = Running::of(holder.0.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
    eventually("the lock", || servers.is_locked("test/a"));
    let run = |options: &[&str]| {
        let options: Vec<&str> = ["--lease", "test/a"].iter().chain(options).copied().collect();
        servers.run(&options, &["true"]).finish()
    };
    let (code, _, err) = run(&["--wait", "0"]);
    assert_eq!(code, Some(75));
    assert!(err.contains("lease test/a is held by the holder; it expires in"), "{err}");
    assert_eq!(run(&["--wait", "200ms", "-E", "5", "-q"]), (Some(5), String::new(), String::new()));
    assert_eq!(run(&["--wait", "0", "-E", "0", "-q"]).0, Some(0), "as with flock, that can be a success");
    let began = Instant::now();
    assert_eq!(run(&["--wait", "4s", "-E", "64", "-q"]).0, Some(64), "this is the code of a wrong option too");
    assert!(began.elapsed() >= Duration::from_secs(4), "{:?}", began.elapsed());
    // The end of its input ends the holder, which releases the lock at once.
    let mut waiter = servers.run(&["--lease", "test/a"], &["true"]).spawn();
    holder.child.stdin.take();
    assert_eq!(holder.wait().code(), Some(0));
    assert_eq!(waiter.wait().code(), Some(0));
}

#[test]
fn without_a_majority_the_code_is_69() {
    let servers = Servers::start();
    for server in &servers.redis[..2] {
        server.process().kill().unwrap();
    }
    let (code, _, err) = servers.run(&["--lease", "test/a", "--wait", "0"], &["true"]).finish();
    assert_eq!(code, Some(69));
    assert!(err.contains("no majority of the 3 Redis nodes votes"), "{err}");
    let began = Instant::now();
    let (code, _, err) = servers.run(&["--lease", "test/a", "--wait", "10s"], &["true"]).finish();
    assert_eq!(code, Some(69));
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}, {err}", began.elapsed());
    assert!(err.contains("redislease run: no majority of the 3 Redis nodes votes after 1"), "{err}");
    let began = Instant::now();
    let (code, _, err) = servers.run(&["--lease", "test/a", "--wait", "100ms"], &["true"]).finish();
    let took = began.elapsed();
    assert!(code == Some(69) && took < Duration::from_secs(2), "{took:?}: only --wait 0 has 3 s: {code:?}: {err}");
}

/// Its error names a key and a namespace, and no option is wrong.
#[test]
fn a_value_of_another_program_is_an_error_with_the_code_125() {
    let servers = Servers::start();
    for server in &servers.redis {
        server.command(&["SET", "redislease:lock:test/foreign", "mine"]).unwrap();
    }
    let (code, _, err) = servers.run(&["--lease", "test/foreign", "--wait", "0"], &["true"]).finish();
    assert_eq!(code, Some(125), "{err}");
    assert!(err.contains(r#"lease test/foreign: the Redis key "redislease:lock:test/foreign" has a value"#), "{err}");
    assert!(err.contains("another key, namespace or prefix") && !err.contains("--"), "{err}");
    assert!(err.contains("that RedisLease did not write"), "{err}");
    let (code, ..) = servers.run(&["--lease", "test/foreign", "-q"], &["true"]).finish();
    assert_eq!(code, Some(125), "it does not wait for ever");
}

#[test]
fn signals_end_a_wait_and_are_passed_on_to_the_command() {
    let servers = Servers::start();
    for isolate in ["pid", "none"] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let text = "trap 'echo usr1' USR1; trap 'echo term; exit 7' TERM; echo ready; while :; do sleep 0.05; done";
        let options = ["--lease", "test/signals", "-q", "--isolate", isolate];
        let mut holder = servers.run(&options, &["sh", "-c", text]).spawn_to(&log);
        let says = |line: &str| fs::read_to_string(&log).unwrap().lines().any(|found| found == line);
        eventually("the command", || says("ready"));
        let mut waiter = servers.run(&options, &["true"]).spawn();
        eventually("the handlers of the waiter", || catches(&waiter, Signal::TERM));
        waiter.signal(Signal::TERM);
        let status = waiter.wait();
        assert_eq!(status.code(), Some(143), "{:?}", status.signal());
        holder.signal(Signal::USR1);
        eventually("the first signal", || says("usr1"));
        holder.signal(Signal::TERM);
        assert_eq!(holder.wait().code(), Some(7));
        assert!(says("term"));
    }
}

/// Whether the process has a handler for the signal.
fn catches(running: &Running, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", running.child.id())).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
    u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (signal.as_raw() - 1)) != 0
}

#[test]
fn what_the_command_leaves_behind_is_killed_and_the_lock_is_free_at_once() {
    let servers = Servers::start();
    let folder = tempfile::tempdir().unwrap();
    for isolate in ["pid", "none"] {
        let log = folder.path().join(isolate);
        let left = format!("while :; do echo x >> {}; sleep 0.01; done", log.display());
        let text = format!("sh -c '{left}' & setsid sh -c '{left}' & while ! [ -s {} ]; do :; done", log.display());
        assert_eq!(script(&servers, &["--isolate", isolate, "-q"], &text).0, Some(0));
        assert!(!servers.is_locked("test/basics"));
        assert!(!grows(&log), "{isolate}: something still writes");
    }
}

#[test]
fn a_killed_run_takes_the_command_with_it_after_the_stop_signal() {
    let servers = Servers::short();
    for isolate in ["pid", "none"] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let text = "trap 'echo term; exit' TERM; echo ready; while :; do sleep 0.05; done";
        let name = format!("test/killed-{isolate}");
        let run = servers.run(&["--lease", &name, "-q", "--isolate", isolate], &["sh", "-c", text]).spawn_to(&log);
        let says = |line: &str| fs::read_to_string(&log).unwrap().lines().any(|found| found == line);
        eventually("the command", || says("ready"));
        let guard = run.guard().unwrap();
        run.signal(Signal::KILL);
        eventually("the stop signal", || says("term"));
        eventually("the end of the guard", || rustix::process::test_kill_process(guard).is_err());
        assert!(servers.is_locked(&name), "nothing has proven to anybody that the command has ended");
    }
}

#[test]
fn a_service_waits_again_after_a_loss_and_runs_its_hooks() {
    let servers = Servers::short();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let options = [
        "--lease",
        "test/service",
        "-q",
        "--mode",
        "service",
        "--on-acquire",
        "echo acquired",
        "--on-lost",
        "echo lost $REDISLEASE_TOKEN",
    ];
    let text = "echo token $REDISLEASE_TOKEN; trap 'echo asked; exit 0' TERM; while :; do sleep 0.05; done";
    let mut run = servers.run(&options, &["sh", "-c", text]).spawn_to(&log);
    let lines = || fs::read_to_string(&log).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    let tokens = || lines().iter().filter(|line| line.starts_with("token ")).count();
    eventually("the first command", || tokens() == 1);
    pause(&servers.redis).unwrap();
    eventually("the loss", || lines().iter().any(|line| line.starts_with("lost ")));
    resume(&servers.redis).unwrap();
    eventually("the second command", || tokens() == 2);
    run.signal(Signal::TERM);
    assert_eq!(run.wait().code(), Some(0), "it has ended by itself");
    let lines = lines();
    // The shell reports the end of `sleep`, and the program the loss.
    assert!(lines.contains(&format!("lost {}", lines[1].strip_prefix("token ").unwrap())), "{lines:?}");
    let without_errors: Vec<&str> = lines
        .iter()
        .filter(|line| !line.starts_with("redislease run:") && *line != "Terminated")
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(without_errors, ["acquired", "token", "asked", "lost", "acquired", "token", "asked"], "{lines:?}");
}

#[test]
fn the_command_does_not_start_if_the_hook_fails() {
    let servers = Servers::start();
    let (code, out, err) = script(&servers, &["--on-acquire", "exit 9"], "echo started");
    assert_eq!((code, out.as_str()), (Some(125), ""));
    assert!(err.contains("that of --on-acquire ended with exit code 9"), "{err}");
    // Not SIGINT: a test may run with that ignored.
    for (signal, expected) in [("TERM", 143), ("KILL", 125)] {
        let hook = format!("kill -{signal} $$");
        let (code, out, err) = script(&servers, &["--on-acquire", &hook], "echo started");
        assert_eq!((code, out.as_str()), (Some(expected), ""), "{signal}: {err}");
    }
    assert!(!servers.is_locked("test/basics"));
}

#[test]
fn an_http_server_says_who_is_active() {
    let servers = Servers::start();
    let options = ["--lease", "test/http", "--owner", "me", "--listen", "127.0.0.1:0"];
    let mut run =
        servers.run(&options, &["sh", "-c", "trap 'exit 0' TERM; echo; while :; do sleep 0.05; done"]).spawn();
    let mut errors = BufReader::new(run.child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    let address = line.trim().rsplit_once("http://").unwrap().1.to_owned();
    let get = |path: &str| get(&address, path);
    // The command has its handler.
    BufReader::new(run.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(get("/active").starts_with("HTTP/1.1 200"));
    assert!(get("/").ends_with(r#"{"name":"me"}"#));
    let lease = get("/lease");
    assert!(lease.contains(r#""active":true"#) && lease.contains(r#""lease":"test/http""#), "{lease}");
    let mut events = BufReader::new(ask(&address, "/events"))
        .lines()
        .map_while(Result::ok)
        .filter(|line| line.starts_with("data: "));
    assert!(events.next().unwrap().contains(r#""active":true"#));
    run.signal(Signal::TERM);
    assert!(events.any(|event| event.contains(r#""active":false"#)), "the end is an event");
    assert_eq!(run.wait().code(), Some(0));
}
