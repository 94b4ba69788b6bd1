//! Redis servers and their faults. Needs redis-server.

use std::time::{Duration, Instant};

use redis::Value;
use redislease_lab::{RedisOptions, RedisServer, Reply, Result};

fn get(server: &RedisServer, key: &str) -> Option<String> {
    server.command(&["GET", key]).expect("GET").text()
}

#[test]
fn a_server_comes_back_full_empty_or_with_an_older_memory() -> Result<()> {
    let server = RedisServer::start()?;
    let address = server.address();
    server.command(&["SET", "term", "1"])?;
    let older = server.save()?;
    server.command(&["SET", "term", "2"])?;

    server.restart_full()?;
    assert_eq!(get(&server, "term").as_deref(), Some("2"));

    server.restart_from(&older)?;
    assert_eq!(get(&server, "term").as_deref(), Some("1"));

    server.restart_empty()?;
    assert_eq!(get(&server, "term"), None);
    assert_eq!(server.address(), address, "the port is kept over all restarts");
    Ok(())
}

#[test]
fn an_unsaved_write_is_lost_by_a_kill() -> Result<()> {
    let server = RedisServer::start()?;
    server.command(&["SET", "term", "1"])?;
    server.process().kill()?;
    let error = server.command(&["GET", "term"]).expect_err("the server is dead");
    assert!(error.to_string().contains("refused"), "{error}");
    server.restart()?;
    assert_eq!(get(&server, "term"), None);
    Ok(())
}

#[test]
fn a_paused_server_executes_its_backlog_when_it_goes_on() -> Result<()> {
    let server = RedisServer::start()?;
    server.process().pause()?;
    let started = Instant::now();
    let error = server.command(&["SET", "late", "1"]).expect_err("the server is paused");
    assert!(started.elapsed() < Duration::from_secs(10), "a paused server does not hang the caller");
    assert!(error.to_string().contains("SET"), "the error names the command: {error}");
    server.process().resume()?;
    server.process().wait_until(Duration::from_secs(10), || match get(&server, "late") {
        Some(_) => Ok(()),
        None => Err("the late write is missing".to_owned()),
    })
}

#[test]
fn a_password_and_arguments_reach_the_server() -> Result<()> {
    let server = RedisServer::start_with(&RedisOptions {
        password: Some("sesame".to_owned()),
        args: ["--maxmemory-policy", "allkeys-lru", "--appendonly", "yes"].map(str::to_owned).into(),
        ..RedisOptions::default()
    })?;
    let policy = server.command(&["CONFIG", "GET", "maxmemory-policy"])?;
    let words = ["maxmemory-policy", "allkeys-lru"].map(|word| Value::BulkString(word.into()));
    assert_eq!(policy, Reply(Value::Array(words.into())));

    server.command(&["SET", "logged", "1"])?;
    server.restart()?;
    assert_eq!(get(&server, "logged").as_deref(), Some("1"), "the append-only file outlives a kill");
    server.restart_empty()?;
    assert_eq!(get(&server, "logged"), None);

    let error = server.command(&["INCR"]).expect_err("an argument is missing");
    assert!(error.to_string().contains("INCR: ERR wrong number of arguments"), "{error}");
    let commands = [vec!["SET", "line", "a\r\nb"], vec!["INCR", "line"], vec!["GET", "line"], vec!["STRLEN", "line"]];
    let commands = commands.map(|command| command.into_iter().map(str::to_owned).collect());
    let replies = server.pipeline(&commands)?;
    assert!(matches!(replies[1], Reply(Value::ServerError(_))), "{replies:?}");
    assert_eq!((replies[2].text().as_deref(), replies[3].integer()), (Some("a\r\nb"), Some(4)));
    Ok(())
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let options =
        RedisOptions { args: ["--no-such-option", "yes"].map(str::to_owned).into(), ..RedisOptions::default() };
    let error = RedisServer::start_with(&options).expect_err("no such option").to_string();
    assert!(error.contains("no-such-option") && error.contains("ended with exit status"), "{error}");
}
