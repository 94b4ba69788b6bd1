//! What the surroundings can deny: a terminal that reads, timers, the lock itself.

use std::fs::File;
use std::io::{self, Write as _};
use std::process::Command;

use redislease_lab::{RedisServer, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Signal;

use crate::support::{PATIENCE, Run, Running, Servers, delete_key, eventually, grows, program};

#[test]
fn errors_that_nobody_can_read_change_no_exit_code() {
    let servers = Servers::start();
    for (isolate, script, code) in [("pid", "exit 3", 3), ("none", "exit 4", 4)] {
        let mut run = servers.run(&["--lease", "test/full", "--isolate", isolate], &["sh", "-c", script]).0;
        let full = File::options().write(true).open("/dev/full").unwrap();
        assert_eq!(run.stderr(full).status().unwrap().code(), Some(code), "{isolate}");
        assert!(!servers.is_locked("test/full"), "{isolate}");
    }
}

/// Connections live longer than passwords and certificates.
#[test]
fn a_password_that_was_replaced_is_read_from_the_file_again() {
    let servers = Servers::start();
    let folder = tempfile::tempdir().unwrap();
    let (file, log) = (folder.path().join("servers"), folder.path().join("log"));
    let write = |password: &str| {
        let urls = servers.redis.iter().map(|server| format!("redis://{password}{}\n", server.address()));
        std::fs::write(&file, urls.collect::<String>()).unwrap();
    };
    write("");
    let mut command = Command::new(program());
    command.args(["--redis-file", file.to_str().unwrap(), "--longest-lease", "8s", "--ttl", "8s", "--grace", "300ms"]);
    command.args(["--lease", "test/password", "--command-timeout", "1s", "--mode", "service", "--", "sleep", "600"]);
    let run = Run(command).spawn_to(&log);
    eventually("the lock", || servers.has_key("test/password") == 3);
    let first = &servers.redis[0];
    first.set_password("new").unwrap();
    first.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
    delete_key(first, "test/password");
    write(":100%@");
    let lines = || {
        let text = std::fs::read_to_string(&log).unwrap();
        text.lines().filter(|line| line.contains("--redis-file: server 1: ") && line.contains("`%25`")).count()
    };
    eventually("a line about the file", || lines() == 1);
    write(":new@");
    let renewed = poll(PATIENCE, || match servers.has_key("test/password") {
        3 => Ok(()),
        count => Err(format!("{count} keys: {}", std::fs::read_to_string(&log).unwrap())),
    });
    renewed.expect("a renewal with the new password");
    assert_eq!(lines(), 1);
    drop(run);
}

/// It has no second content.
#[test]
fn a_pipe_is_not_read_again_and_a_line_says_so() {
    let server = RedisServer::start().unwrap();
    let run = format!("exec {} --redis-file <(echo redis://{})", program().display(), server.address());
    let options = "--single-node --lease a/b --wait 0 -- true";
    let output = Command::new("bash").args(["-c", &format!("{run} {options}")]).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("--redis-file /dev/fd/") && errors.contains("are not read again"), "{errors}");
}

#[test]
fn a_program_that_waits_says_why() {
    let servers = Servers::start();
    let folder = tempfile::tempdir().unwrap();
    let options = ["--lease", "test/waits", "--owner", "the first"];
    let mut first =
        servers.run(&options, &["sh", "-c", "echo ready; exec sleep 100"]).spawn_to(&folder.path().join("1"));
    let text = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    eventually("the first command", || text("1").contains("ready"));
    let second = servers.run(&["--lease", "test/waits"], &["true"]).spawn_to(&folder.path().join("2"));
    eventually("a line", || text("2").contains("waiting: lease test/waits is held by the first"));
    drop(second);
    first.signal(Signal::TERM);
    assert_eq!(first.wait().code(), Some(128 + 15));
}

/// The kernel keeps no deadline without a timer. The command must not start, and this is no loss, which a service would repeat.
#[test]
fn without_a_timer_of_the_kernel_nothing_starts() {
    let servers = Servers::start();
    let run = servers.run(&["--lease", "test/timer", "--mode", "service"], &["echo", "started"]);
    let (code, out, errors) = run.under("bash", &["-c", "ulimit -i 0; exec \"$@\"", "bash"]).finish();
    assert_eq!((code, out.as_str()), (Some(125), ""), "{errors}");
    assert!(errors.contains("the kernel gives no timer") && errors.contains("ulimit -i"), "{errors}");
    assert!(!servers.is_locked("test/timer"));
}

#[test]
fn with_too_few_descriptors_nothing_starts_and_nothing_panics() {
    let urls = "redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3";
    for limit in [6, 10, 20] {
        let run = Run::new(&["--redis", urls, "--lease", "a/b", "--wait", "0", "--", "true"]);
        let shell = ["-c", &format!("ulimit -n {limit}; exec \"$@\""), "bash"];
        let (code, _, errors) = run.under("bash", &shell).finish();
        assert_eq!(code, Some(125), "{limit}: {errors}");
        assert!(errors.contains("ulimit -n") && !errors.contains("panicked"), "{limit}: {errors}");
    }
}

/// The kernel ends a program that writes to a file all the same, unless it has a handler.
#[test]
fn a_limit_of_the_size_of_files_only_takes_the_deadline_file() {
    let servers = Servers::start();
    let run = servers.run(&["--lease", "test/size"], &["sh", "-c", "kill -XFSZ $$"]);
    let (code, _, errors) = run.under("bash", &["-c", "ulimit -f 0; exec \"$@\"", "bash"]).finish();
    assert_eq!(code, Some(128 + 25), "the command has the default action: {errors}");
    assert!(errors.contains("File too large"), "{errors}");
    assert!(!servers.is_locked("test/size"));
}

/// The writing end of a pipe that is full, and the reading end, which nobody reads.
fn full_pipe() -> (io::PipeReader, io::PipeWriter) {
    let (reader, mut writer) = io::pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'x'; 512]).is_ok() {}
    fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

#[test]
fn a_standard_error_that_is_not_read_delays_no_renewal() {
    let servers = Servers::short();
    let text = "stop() { sed 's/.*stopBoottimeMs\":\\([0-9]*\\).*/\\1/' $REDISLEASE_DEADLINE_FILE; }
                first=$(stop); while [ $(stop) -lt $((first + 3000)) ]; do sleep 0.05; done";
    for isolate in ["pid", "none"] {
        let (_reader, writer) = full_pipe();
        let run = servers.run(&["--lease", "test/blocked", "--isolate", isolate], &["sh", "-c", text]).0;
        let status = Running::of({ run }.stderr(writer).spawn().unwrap()).wait();
        assert_eq!(status.code(), Some(0), "{isolate}");
        assert!(!servers.is_locked("test/blocked"), "{isolate}");
    }
}

#[test]
fn after_a_loss_that_nobody_reads_no_process_of_the_command_is_left() {
    let servers = Servers::start();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let text = format!("setsid sh -c 'while :; do echo x >> {}; sleep 0.01; done' & wait", log.display());
    let (_reader, writer) = full_pipe();
    let run = servers.run(&["--lease", "test/unread", "--isolate", "none"], &["sh", "-c", &text]).0;
    let mut run = Running::of({ run }.stderr(writer).spawn().unwrap());
    eventually("the worker", || log.exists());
    servers.delete("test/unread");
    assert_eq!(run.wait().code(), Some(76));
    assert!(!grows(&log), "something still writes");
}
