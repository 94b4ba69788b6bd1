//! The options, and what is said about them.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::time::Instant;

use redislease_core::marker::fingerprint;
use redislease_core::time::Millis;
use redislease_lab::{Authority, RedisOptions, RedisServer, RedisTls, pause, resume};

use crate::support::{Run, Running, Servers, eventually};
use crate::worker;

/// What `run` says about a wrong command line.
fn errors_of_wrong(line: &[&str]) -> String {
    let (code, _, err) = Run::new(line).finish();
    assert_eq!(code, Some(64), "{line:?}: {err}");
    err
}

#[test]
fn wrong_options_give_64_and_say_what_to_do() {
    let server = "redis://127.0.0.1:1";
    let three = "redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3";
    let long = format!("a/{}", "n".repeat(100));
    let quoted = format!("a/x\"...: {}", "n".repeat(100));
    for (options, part) in [
        (vec!["--redis", three, "--lease", "a"], "such as shop/nightly-report"),
        (vec!["--lease", "a/b"], "--redis"),
        (vec!["--redis", server, "--lease", "a/b"], "use --single-node"),
        (vec!["--redis", three, "--lease", "a/b", "--ttl", "10s"], "use a --ttl of at least 12s"),
        (
            vec!["--redis", three, "--lease", "a/b", "--ttl", "40s"],
            "--ttl is 40s: use 200ms to 30s, the value of --longest-lease",
        ),
        (vec!["--redis", three, "--lease", "a/b", "--ttl", "0"], "redislease run: --ttl is 0s: "),
        (vec!["--redis", three, "--lease", &long, "--ttl", "0"], "redislease run: --ttl is 0s: "),
        (vec!["--redis", three, "--lease", &quoted, "--ttl", "0"], "redislease run: --ttl is 0s: "),
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
        (
            vec!["--redis", three, "--lease", "a/b", "--owner", &"n".repeat(1100)],
            "redislease run: --owner has 1100 bytes",
        ),
        (vec!["--redis", three, "--lease", "a/b", "--listen", "4040"], "such as 127.0.0.1:4040"),
    ] {
        let err = errors_of_wrong(&[&options[..], &["--", "true"]].concat());
        assert!(err.contains(part), "{options:?}: {err}");
    }
}

#[test]
fn the_program_of_its_own_takes_the_word_run_and_shows_the_exit_codes() {
    let err = errors_of_wrong(&["run", "--redis", "redis://h:1", "--lease", "a", "--", "true"]);
    assert!(err.contains("such as shop/nightly-report"), "{err}");
    let (code, out, _) = Run::new(&["--help"]).finish();
    assert!(code == Some(0) && out.contains("Exit codes: that of the command"), "{out}");
}

/// As in the files with variables that containers and systemd read.
#[test]
fn a_variable_turns_an_option_on_with_1_or_true() {
    let server = RedisServer::start().unwrap();
    for (value, is_on) in [("1", true), ("true", true), ("0", false), ("false", false)] {
        let run = single(&[]).env("REDISLEASE_RUN_QUIET", value);
        let (code, _, err) = run.env("REDISLEASE_RUN_REDIS", format!("redis://{}", server.address())).finish();
        // A server that does not vote yet is an error, which is shown also with this option.
        let is_quiet = err.lines().all(|line| line.contains("waiting: "));
        assert_eq!((code, is_quiet), (Some(0), is_on), "{value}: {err}");
    }
}

#[test]
fn a_command_without_dashes_before_it_gives_a_hint() {
    for line in [&["true"][..], &["/bin/sh", "script"], &["/bin/sh", "--", "-c"]] {
        let err = errors_of_wrong(&[&["--redis", "redis://h:1", "--lease", "a/b"], line].concat());
        assert!(err.contains(&format!("write -- before the command, as in: -- {}", line[0])), "{line:?}: {err}");
    }
}

#[test]
fn no_error_shows_a_part_of_a_password() {
    for list in ["redis://:sec,ret@h", "redis://:sec,ret", "a=redis://:sec,redis://ret@h", "sec,ret@h:1", "sec=ret@h:1"]
    {
        let err = errors_of_wrong(&["--redis", list, "--lease", "a/b", "--", "true"]);
        assert!(err.contains("server 1: ") && !err.contains("sec") && !err.contains("ret"), "{list}: {err}");
    }
}

/// As an old editor writes it, and as a program writes the bytes of another encoding.
#[test]
fn a_password_that_is_not_utf_8_is_refused_and_not_shown() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let line = ["--redis-file", path, "--single-node", "--lease", "a/b", "--", "true"];
    fs::write(file.path(), b"# one server\n\nredis://:sec\xe4ret@h:1\n").unwrap();
    let err = errors_of_wrong(&line);
    assert!(err.contains(&format!("--redis-file {path}: line 3 is not UTF-8")), "{err}");
    let err = err.replace(path, "");
    assert!(!err.contains("sec") && !err.contains("ret"), "{err}");
    fs::write(file.path(), "redis://:sec%E4ret@h:1").unwrap();
    let err = errors_of_wrong(&line);
    assert!(err.contains("--redis-file: server 1: ") && err.contains("UTF-8") && !err.contains("%25"), "{err}");
    assert!(!err.contains("sec") && !err.contains("ret"), "{err}");
}

#[test]
fn the_help_shows_no_password_of_a_variable() {
    let help = Run::new(&["--help"]).env("REDISLEASE_RUN_REDIS", "redis://:secret@h:1");
    let (code, out, err) = help.finish();
    assert!(code == Some(0) && out.contains("REDISLEASE_RUN_REDIS"), "{code:?}: {err}");
    assert!(!out.contains("secret") && !err.contains("secret"), "{out}{err}");
}

#[test]
fn a_misplaced_url_is_not_shown() {
    for line in [&["--redis-file", "redis://:secret@h:1"][..], &["--redis", "redis://a:1,", "redis://:secret@h:1"]] {
        let err = errors_of_wrong(&[line, &["--lease", "a/b", "--", "true"]].concat());
        assert!(err.contains("--redis") && !err.contains("secret"), "{line:?}: {err}");
    }
}

/// A group that no process of a test belongs to.
const FOREIGN_GROUP: u32 = 54_321;

/// A server with a comma in its password, and the options for it.
fn server_with_password() -> (RedisServer, String) {
    let options = RedisOptions { password: Some("sec,ret".into()), ..RedisOptions::default() };
    let server = RedisServer::start_with(&options).unwrap();
    let url = format!("one=redis://:sec,ret@{}", server.address());
    (server, url)
}

/// A command line for one server, with a lock that expires soon.
fn single(options: &[&str]) -> Run {
    let line = "--single-node --longest-lease 3s --ttl 3s --grace 0 --lease a/b -- true";
    Run::new(&[options, &line.split(' ').collect::<Vec<_>>()].concat())
}

#[test]
fn servers_and_passwords_can_be_in_a_file_that_only_this_user_reads() {
    let (_server, url) = server_with_password();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), format!("\u{feff}# the only one\n\n {url}\n")).unwrap();
    let run = || single(&["--redis-file", file.path().to_str().unwrap()]).finish();
    let warning = format!("other users can read the passwords in --redis-file {}", file.path().display());
    let check = |mode: u32, warns: bool| {
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        let (code, _, err) = run();
        assert_eq!((code, err.contains(&warning)), (Some(0), warns), "{mode:o}: {err}");
    };
    check(0o600, false);
    // As kubelet lets the group of the pod read a Secret volume: with the group of this process.
    check(0o640, false);
    check(0o604, true);
    // Only root can give a file to a group that it does not belong to.
    if chown(file.path(), None, Some(FOREIGN_GROUP)).is_ok() {
        check(0o640, true);
        check(0o600, false);
    }
}

/// A variable can be that of a whole machine, as in a crontab.
#[test]
fn a_flag_takes_the_place_of_the_variable_of_the_other_flag_and_an_empty_variable_is_none() {
    const URLS: &str = "REDISLEASE_RUN_REDIS";
    const FILE: &str = "REDISLEASE_RUN_REDIS_FILE";
    let (_server, url) = server_with_password();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), &url).unwrap();
    let path = file.path().to_str().unwrap();
    let both = "both --redis and --redis-file are set";
    for (flags, variables, code, text) in [
        (&[][..], &[(FILE, path)][..], 0, ""),
        (&["--redis", &url], &[(FILE, "/absent")], 0, ""),
        (&["--redis-file", path], &[(URLS, "redis://absent:1")], 0, ""),
        (&[], &[(URLS, ""), (FILE, path)], 0, ""),
        (&[], &[(URLS, &url), (FILE, "")], 0, ""),
        (&["--redis", &url], &[(FILE, "")], 0, ""),
        (&["--redis", &url, "--redis-file", path], &[], 64, both),
        (&[], &[(URLS, &url), (FILE, path)], 64, both),
        (&[], &[(URLS, ""), (FILE, "")], 64, "required arguments were not provided"),
    ] {
        let run = variables.iter().fold(single(flags), |run, (name, value)| run.env(name, value));
        let (found, _, err) = run.finish();
        assert!(found == Some(code) && err.contains(text), "{flags:?}, {variables:?}: {found:?}: {err}");
    }
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

#[test]
fn servers_that_the_error_names_are_not_named_again() {
    let servers = Servers::short();
    let urls = servers.urls();
    let line = "--longest-lease 5s --ttl 5s --grace 300ms --lease test/other --wait 0 -- true";
    let line = ["--redis", &urls].into_iter().chain(line.split(' '));
    let (code, _, err) = Run::new(&line.collect::<Vec<_>>()).finish();
    assert_eq!((code, err.lines().count()), (Some(69), 1), "{err}");
    assert!(err.contains("the same nodes and the same --longest-lease") && !err.contains("one longest_lease"), "{err}");
}

/// A program that holds this lock.
fn holder(servers: &Servers, lease: &str) -> Running {
    servers.run(&["--lease", lease, "-q"], &["sleep", "1000"]).spawn()
}

#[test]
fn the_signal_of_the_user_asks_the_command_to_stop_after_a_loss() {
    let servers = Servers::short();
    let folder = tempfile::tempdir().unwrap();
    let text = "trap 'echo usr1; exit 0' USR1; trap 'echo term; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    for isolate in ["pid", "none"] {
        let log = folder.path().join(isolate);
        let options = ["--lease", "test/signal", "-q", "--isolate", isolate, "--signal", "USR1"];
        let mut run = servers.run(&options, &["sh", "-c", text]).spawn_to(&log);
        let said = || fs::read_to_string(&log).unwrap();
        eventually("the command", || said().contains("ready"));
        pause(&servers.redis).unwrap();
        let code = run.wait().code();
        resume(&servers.redis).unwrap();
        assert_eq!(code, Some(76), "{isolate}: {}", said());
        assert!(said().contains("usr1") && !said().contains("term"), "{isolate}: {}", said());
    }
}

#[test]
fn the_pause_between_two_attempts_has_the_limit_of_the_user() {
    let servers = Servers::start();
    let _holder = holder(&servers, "test/retry");
    eventually("the lock", || servers.has_key("test/retry") == 3);
    let scripts = || -> u32 {
        let text = servers.redis[0].command(&["INFO", "commandstats"]).unwrap().text().unwrap();
        let calls = text.split_once("cmdstat_evalsha:calls=").map_or("0", |(_, rest)| rest.split(',').next().unwrap());
        calls.parse().unwrap()
    };
    let attempts = |retry: &str| {
        let before = scripts();
        let waiter = servers.run(&["--lease", "test/retry", "--wait", "3s", "-q", "--retry", retry], &["true"]);
        assert_eq!(waiter.finish().0, Some(75));
        scripts() - before
    };
    // The holder and the connections need a few scripts too.
    let (often, seldom) = (attempts("15ms"), attempts("3s"));
    assert!(often > 50 && seldom < often / 2, "{often} and {seldom} scripts");
}

#[test]
fn the_lock_is_renewed_as_often_as_the_user_says() {
    let servers = Servers::start();
    let text = "for i in $(seq 60); do cat $REDISLEASE_DEADLINE_FILE; echo; sleep 0.05; done";
    let renewals = |every: &str| {
        let options = ["--lease", "test/renew", "-q", "--wait", "20s", "--renew-every", every];
        let began = Instant::now();
        let (code, out, err) = servers.run(&options, &["sh", "-c", text]).finish();
        assert_eq!(code, Some(0), "{err}");
        (out.lines().filter_map(worker::deadline).collect::<BTreeSet<u64>>().len(), began.elapsed())
    };
    let ((often, span), (seldom, _)) = (renewals("150ms"), renewals("3s"));
    // By default, one in 2.2 s.
    assert!(often as u64 >= span.as_secs() && often > seldom, "{often} deadlines in {span:?}, and {seldom}");
}

/// The lines of the table for those who come from another lock, with the defaults of all other options.
#[test]
fn the_options_of_the_page_for_those_who_come_from_another_lock_do_what_it_says() {
    let page = fs::read_to_string(redislease_lab::repository().join("docs/coming-from.md")).unwrap();
    let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once("| `--"));
    let lines: Vec<&str> = cells.map(|(_, options)| options.split_once('`').unwrap().0).collect();
    assert_eq!(lines.len(), 5, "{lines:?}");
    for line in lines {
        let mut servers = Servers::new("30s");
        servers.redis.truncate(if line == "single-node" { 1 } else { 3 });
        let mut names: Vec<String> = servers.redis.iter().map(|server| server.address().to_string()).collect();
        names.sort_unstable();
        let membership = format!("1:programs;{};longest_lease=30000ms", names.join(","));
        servers.redis.iter().for_each(|server| server.admit("redislease", &membership).unwrap());
        let urls = servers.urls();
        let run = |text: &str| {
            let mut run = Run::new(&["--redis", &urls, "--lease", "shop/report", "-q"]);
            run.0.args(format!("--{line}").split(' ')).args(["--", "sh", "-c", text]);
            run
        };
        let mut first = run("echo $REDISLEASE_TOKEN; sleep 1").spawn();
        eventually("the first program to hold the lock", || servers.has_key("shop/report") > 0);
        let (code, out, err) = run("echo $REDISLEASE_TOKEN").finish();
        // Only the task of several machines must not run again.
        let is_task = line.contains("hold-at-least");
        assert_eq!(code, Some(if is_task { 75 } else { 0 }), "--{line}: {err}");
        let (mut token, code) = (String::new(), first.wait().code());
        first.child.stdout.take().unwrap().read_to_string(&mut token).unwrap();
        assert_eq!(code, Some(0), "--{line}: {}", first.errors());
        assert!(
            is_task || out.trim().parse::<u64>().unwrap() > token.trim().parse().unwrap(),
            "--{line}: {out}, {token}"
        );
        assert_eq!(run("true").finish().0, Some(if is_task { 75 } else { 0 }), "--{line}: after its end");
    }
}

/// With the marker and the token counter that an operator writes.
#[test]
fn the_servers_of_an_operator_with_a_prefix_vote_at_once_if_the_user_names_both() {
    /// The token of a resource of the operator.
    const TOKEN: u64 = 3_000_000_000_000_000;
    let servers = Servers::new("8s");
    let names = ["redis-0", "redis-1", "redis-2"];
    let membership = format!("1:{}", fingerprint(&names, 2, Millis(8000), "prefix"));
    for server in &servers.redis {
        server.command(&["SET", "prefix:fence", &TOKEN.to_string()]).unwrap();
        server.admit("prefix", &membership).unwrap();
    }
    let urls = names.iter().zip(&servers.redis).map(|(name, server)| format!("{name}=redis://{}", server.address()));
    let urls = urls.collect::<Vec<_>>().join(",");
    let options = "--longest-lease 8s --ttl 8s --grace 300ms --command-timeout 1s --lease test/beside --wait 6s";
    let options = options.split(' ').chain(["--beside-operator", "--prefix", "prefix", "--redis", &urls]);
    let line = options.chain(["--", "sh", "-c", "echo $REDISLEASE_TOKEN"]);
    let (code, out, err) = Run::new(&line.collect::<Vec<_>>()).finish();
    assert_eq!(code, Some(0), "before the longest lease has passed: {err}");
    assert!(out.trim().parse::<u64>().unwrap() > TOKEN, "{out}");
}

#[test]
fn connections_with_tls_use_the_authority_and_the_certificate_of_the_user() {
    let ours = Authority::new("ours").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let ca = file("ca", &ours.certificate());
    let client = ours.sign(&["client"]).unwrap();
    let (certificate, key) = (file("certificate", &client.certificate), file("key", &client.key));
    let identity = ours.sign(&["redis.example"]).unwrap();
    let tls = RedisTls { identity, client_ca: Some(ours.certificate()) };
    let server = RedisServer::start_with(&RedisOptions { tls: Some(tls), ..RedisOptions::default() }).unwrap();
    let url = format!("rediss://{}", server.tls_address().unwrap());
    let as_client = ["--tls-certificate", &certificate, "--tls-key", &key, "--tls-server-name", "redis.example"];
    let (code, _, err) =
        single(&[&["--redis", &url, "--tls-ca", &ca, "--wait", "20s"], &as_client[..]].concat()).finish();
    assert_eq!(code, Some(0), "{err}");
}
