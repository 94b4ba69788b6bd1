//! The options, and what is said about them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use redislease_lab::{RedisOptions, RedisServer};

use crate::support::{Servers, program};

#[test]
fn wrong_options_give_64_and_say_what_to_do() {
    let run = |options: &[&str]| {
        let output = Command::new(program()).args(options).args(["--", "true"]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let server = "redis://127.0.0.1:1";
    let three = "redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3";
    for (options, part) in [
        (vec!["--redis", three, "--lease", "a"], "such as shop/nightly-report"),
        (vec!["--lease", "a/b"], "--redis"),
        (vec!["--redis", server, "--lease", "a/b"], "use --single-node"),
        (vec!["--redis", three, "--lease", "a/b", "--ttl", "10s"], "use a ttl of at least 12s"),
        (
            vec!["--redis", three, "--lease", "a/b", "--ttl", "40s"],
            "--ttl is 40s: use 200ms to 30s, the value of --longest-lease",
        ),
        (vec!["--redis", three, "--lease", "a/b", "--ttl", "0"], "--ttl is 0s: "),
        (vec!["--redis", three, "--lease", "a/b", "--hold-at-least", "40s"], "--hold-at-least is 40s: use up to 30s"),
        (vec!["--redis", three, "--lease", "a/b", "--signal", "STOP"], "SIGSTOP suspends the command"),
        (vec!["--redis", three, "--lease", "a/b\nc"], "control characters"),
        (vec!["--redis", three, "--lease", "a/b", "--owner", "x\x1b[2J"], "control characters"),
        (vec!["--redis", three, "--lease", "a/b", "--wait", "30"], "such as 30s, 1m30s or 250ms, or `forever`"),
        (vec!["--redis", three, "--lease", "a/b", "--signal", "X"], "such as TERM"),
        (vec!["--redis", "rediss://a:1,rediss://b:1,rediss://c:1", "--lease", "a/b"], "use --tls-ca"),
        (vec!["--redis-file", "/absent", "--lease", "a/b"], "--redis-file /absent: No such file"),
        (vec!["--redis-file", "/absent", "--redis", three, "--lease", "a/b"], "both --redis and --redis-file are set"),
        (vec!["--redis", "a:1", "--lease", "a/b"], "--redis: server 1: write its URL as `redis://host:port`"),
        (vec!["--redis", three, "--lease", "a/b", "--prefix", ""], "--prefix has 0 bytes"),
        (vec!["--redis", three, "--lease", &format!("{}/b", "n".repeat(200))], "--lease: namespace has 200 bytes"),
        (vec!["--redis", three, "--lease", &format!("a/{}", "n".repeat(1100))], "--lease: the name \"nnn"),
        (vec!["--redis", three, "--lease", "a/b", "--owner", &"n".repeat(1100)], "--owner has 1100 bytes"),
        (vec!["--redis", three, "--lease", "a/b", "--listen", "4040"], "such as 127.0.0.1:4040"),
    ] {
        let (code, err) = run(&options);
        assert_eq!(code, Some(64), "{options:?}: {err}");
        assert!(err.contains(part), "{options:?}: {err}");
    }
}

/// As in the files with variables that containers and systemd read.
#[test]
fn a_variable_turns_an_option_on_with_1_or_true() {
    let server = RedisServer::start().unwrap();
    for (value, is_on) in [("1", true), ("true", true), ("0", false), ("false", false)] {
        let mut run = Command::new(program());
        run.env("REDISLEASE_RUN_QUIET", value).env("REDISLEASE_RUN_REDIS", format!("redis://{}", server.address()));
        let (code, err) = single(&mut run);
        // A server that does not vote yet is an error, which is shown also with this option.
        let is_quiet = err.lines().all(|line| line.contains("waiting: "));
        assert_eq!((code, is_quiet), (Some(0), is_on), "{value}: {err}");
    }
}

#[test]
fn a_command_without_dashes_before_it_gives_a_hint() {
    for line in [&["true"][..], &["/bin/sh", "script"], &["/bin/sh", "--", "-c"]] {
        let mut run = Command::new(program());
        let output = run.args(["--redis", "redis://h:1", "--lease", "a/b"]).args(line).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{line:?}: {err}");
        assert!(err.contains(&format!("write -- before the command, as in: -- {}", line[0])), "{line:?}: {err}");
    }
}

#[test]
fn no_error_shows_a_part_of_a_password() {
    for list in ["redis://:sec,ret@h", "redis://:sec,ret", "a=redis://:sec,redis://ret@h", "sec,ret@h:1", "sec=ret@h:1"]
    {
        let mut run = Command::new(program());
        let output = run.args(["--redis", list, "--lease", "a/b", "--", "true"]).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{list}: {err}");
        assert!(err.contains("server 1: ") && !err.contains("sec") && !err.contains("ret"), "{list}: {err}");
    }
}

#[test]
fn a_misplaced_url_is_not_shown() {
    for line in [&["--redis-file", "redis://:secret@h:1"][..], &["--redis", "redis://a:1,", "redis://:secret@h:1"]] {
        let mut run = Command::new(program());
        let output = run.args(line).args(["--lease", "a/b", "--", "true"]).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{line:?}: {err}");
        assert!(err.contains("--redis") && !err.contains("secret"), "{line:?}: {err}");
    }
}

/// A server with a comma in its password, and the options for it.
fn server_with_password() -> (RedisServer, String) {
    let options = RedisOptions { password: Some("sec,ret".into()), ..RedisOptions::default() };
    let server = RedisServer::start_with(&options).unwrap();
    let url = format!("one=redis://:sec,ret@{}", server.address());
    (server, url)
}

fn single(command: &mut Command) -> (Option<i32>, String) {
    command.args([
        "--single-node",
        "--longest-lease",
        "3s",
        "--ttl",
        "3s",
        "--grace",
        "0",
        "--lease",
        "a/b",
        "--",
        "true",
    ]);
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn servers_and_passwords_can_be_in_a_file_that_only_this_user_reads() {
    let (_server, url) = server_with_password();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), format!("\u{feff}# the only one\n\n {url}\n")).unwrap();
    let run = || single(Command::new(program()).arg("--redis-file").arg(file.path()));
    let warning = format!("other users can read the passwords in --redis-file {}", file.path().display());
    for (mode, warns) in [(0o600, false), (0o640, true), (0o604, true)] {
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        let (code, err) = run();
        assert_eq!((code, err.contains(&warning)), (Some(0), warns), "{mode:o}: {err}");
    }
}

#[test]
fn a_password_on_the_command_line_can_have_a_comma() {
    let (_server, url) = server_with_password();
    let (code, err) = single(Command::new(program()).args(["--redis", &url]));
    assert_eq!(code, Some(0), "{err}");
}

#[test]
fn a_replica_among_the_servers_is_named_once() {
    let servers = Servers::short();
    let [master, .., replica] = &servers.redis[..] else { panic!() };
    let address = master.address().to_string();
    let (host, port) = address.rsplit_once(':').unwrap();
    replica.command(&["REPLICAOF", host, port]).unwrap();
    let (code, _, err) = servers.run(&["--lease", "test/replica", "-q"], &["sleep", "2"]).finish();
    assert_eq!(code, Some(0), "{err}");
    let warnings: Vec<&str> = err.lines().filter(|line| line.contains("warning: a server does not vote: ")).collect();
    assert_eq!(warnings.len(), 1, "with three renewals: {err}");
    assert!(warnings[0].contains(&replica.address().to_string()), "{err}");
}
