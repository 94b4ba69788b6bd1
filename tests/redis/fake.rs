//! A fake server with answers that a real one cannot be made to give: clock steps and invalid replies.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redislease_core::op::Vote;
use redislease_core::time::Millis;
use redislease_lock::clock;
use redislease_lock::nodes::script::Script;
use redislease_lock::nodes::{Config, NodeState, Reason};

use crate::support::{TIMEOUT, World, acquire, config, eventually, extend, seal};

const INFO: &str =
    "redis_version:7.0.15\r\nrun_id:me\r\nrole:master\r\ncluster_enabled:0\r\nmaxmemory_policy:noeviction\r\n";
const ADMITTED: &str = "me:1:f00d";

/// How the fake differs from an admitted node that has every requested term.
#[derive(Default)]
struct Tricks {
    /// Its wall clock minus the real one, in milliseconds.
    offset: AtomicI64,
    /// Whether it returns an invalid marker.
    foreign_marker: AtomicBool,
    /// Whether it sends the answer to GET only with the next command's.
    delays_get: AtomicBool,
    /// How many commands followed a delayed GET on its connection.
    after_get: AtomicUsize,
    /// Whether it answers a seal with something other than a list.
    answers_ok: AtomicBool,
    /// How long it works on one call that extends leases, in milliseconds.
    extend_takes: AtomicU64,
    /// When it answered each read of the marker.
    observed: Mutex<Vec<Instant>>,
    /// The ticket that replaced the marker after a step.
    ticket: Mutex<Option<String>>,
}

/// Serves until the test process ends.
fn fake(tricks: Arc<Tricks>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let tricks = tricks.clone();
            std::thread::spawn(move || serve(stream, &tricks));
        }
    });
    address
}

/// A process on one fake, which votes.
async fn voting(command_timeout: Millis) -> (Arc<Tricks>, World) {
    let tricks = Arc::new(Tricks::default());
    let world = World::start(&Config { command_timeout, ..config([fake(tricks.clone()).to_string()]) });
    world.up(0).await;
    (tricks, world)
}

/// Ends with the connection.
fn serve(mut stream: TcpStream, tricks: &Tricks) -> redis::RedisResult<()> {
    let mut parser = redis::Parser::new();
    let mut delayed = None;
    loop {
        let words: Vec<String> = redis::from_redis_value(parser.parse_value(&stream)?)?;
        if words[0] == "GET" && tricks.delays_get.load(Ordering::SeqCst) {
            delayed = Some(bulk(ADMITTED));
            continue;
        }
        if let Some(delayed) = delayed.take() {
            tricks.after_get.fetch_add(1, Ordering::SeqCst);
            stream.write_all(delayed.as_bytes())?;
        }
        stream.write_all(answer(&words, tricks).as_bytes())?;
    }
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn answer(words: &[String], tricks: &Tricks) -> String {
    let ran = |script: Script| words[1] == redis::Script::new(script.source()).get_hash();
    if words[0] == "EVALSHA" && ran(Script::Extend) {
        std::thread::sleep(Duration::from_millis(tricks.extend_takes.load(Ordering::SeqCst)));
    }
    let observed = (words[0] == "EVALSHA" && ran(Script::Observe)).then(|| {
        tricks.observed.lock().unwrap().push(Instant::now());
        let mut ticket = tricks.ticket.lock().unwrap();
        let stands = ticket.clone().unwrap_or_else(|| ADMITTED.to_owned());
        // There are two KEYS. The run ID, the nonce and the expected marker follow them.
        if words[7] == stands {
            *ticket = Some(format!("wait:{}:{}", words[5], words[6]));
        }
        ticket.clone().unwrap_or(stands)
    });
    let parts = match words[0].as_str() {
        "INFO" => return bulk(INFO),
        "SCRIPT" => return "+OK\r\n".to_owned(),
        "EVALSHA" if ran(Script::Observe) && tricks.foreign_marker.load(Ordering::SeqCst) => vec!["marker", "theirs"],
        "EVALSHA" if observed.is_some() => vec!["marker", observed.as_deref().unwrap_or_default()],
        "EVALSHA" if ran(Script::Check) => vec!["checked"],
        "EVALSHA" if ran(Script::Fence) => vec!["fence", "1", "0"],
        "EVALSHA" if ran(Script::Extend) => vec!["extended"],
        "EVALSHA" if ran(Script::Ends) && tricks.answers_ok.load(Ordering::SeqCst) => return "+OK\r\n".to_owned(),
        "EVALSHA" if ran(Script::Ends) => vec!["extended"],
        _ => return "-ERR unknown command\r\n".to_owned(),
    };
    let offset = tricks.offset.load(Ordering::SeqCst) * 1000;
    let time = clock::unix_micros().checked_add_signed(offset).unwrap();
    let time = [(time / 1_000_000).to_string(), (time % 1_000_000).to_string()];
    let parts: Vec<_> = time.iter().map(String::as_str).chain(parts).map(bulk).collect();
    format!("*{}\r\n{}", parts.len(), parts.concat())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_clock_jumps_loses_its_vote_with_the_answer_that_shows_it() {
    for jump in [60_000, -60_000] {
        let (tricks, world) = voting(TIMEOUT).await;
        assert_eq!(world.ask(0, extend(1, 1)).await, Vote::Extended);

        tricks.offset.store(jump, Ordering::SeqCst);
        let in_flight: Vec<_> = (0..10).map(|_| world.send(0, extend(1, 1), TIMEOUT)).collect();
        for vote in in_flight {
            let vote = vote.await.unwrap();
            assert!(matches!(vote, Vote::Unknown | Vote::Abstained), "by {jump} ms: {vote:?}");
        }
        world.quarantined(0).await;
        assert_eq!(world.ask(0, extend(1, 1)).await, Vote::Abstained);
        let offset = world.status(0).clock_offset_ms.unwrap();
        assert!((offset - jump).abs() < 1000, "{offset}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_reply_is_not_a_vote() {
    let (tricks, world) = voting(TIMEOUT).await;
    assert_eq!(world.ask(0, acquire(1)).await, Vote::Unknown, "an unknown error");
    world.shows(r#"redislease_redis_errors_total{kind="protocol",quorum="q",redis_node="a"}"#, 1).await;
    assert_eq!(world.status(0).state, NodeState::Up, "other replies may be valid");

    tricks.foreign_marker.store(true, Ordering::SeqCst);
    let status = world.wait(0, "down", |status| status.reason == Some(Reason::Protocol)).await;
    assert!(status.message.contains("marker `theirs` is neither"), "{}", status.message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_may_belong_to_another_call_ends_the_connection() {
    let (tricks, world) = voting(TIMEOUT).await;
    for (answers_ok, text) in [(true, "instead of a list"), (false, "`extended` does not belong to this script")] {
        tricks.answers_ok.store(answers_ok, Ordering::SeqCst);
        let down = async { world.wait(0, "down", |status| status.message.contains(text)).await };
        let (vote, status) = tokio::join!(world.ask(0, seal(1)), down);
        assert_eq!(vote, Vote::Unknown);
        assert_eq!(status.reason, Some(Reason::Protocol));
        world.up(0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_answer_while_connecting_is_not_taken_for_the_next_one() {
    let tricks = Arc::new(Tricks::default());
    tricks.delays_get.store(true, Ordering::SeqCst);
    let hasty = Config { command_timeout: Millis(200), ..config([fake(tricks.clone()).to_string()]) };
    let world = World::start(&hasty);
    let status = world.wait(0, "down", |status| status.reason == Some(Reason::Timeout)).await;
    assert!(status.message.contains("GET: no answer within 200 ms"), "{}", status.message);
    tricks.delays_get.store(false, Ordering::SeqCst);
    world.up(0).await;
    assert_eq!(tricks.after_get.load(Ordering::SeqCst), 0, "the connection was not used any more");
}

/// The renewals need two and a half times the command timeout. A marker read waits for the 16 calls that are in flight
/// at most, which is less than half of it. One that has no answer after a command timeout closes the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_slow_renewals_delay_no_marker_read() {
    let (count, timeout) = (10_000, Millis(1000));
    let (tricks, world) = voting(timeout).await;
    let mut watch = world.nodes.watch();
    watch.mark_unchanged();
    tricks.extend_takes.store(25, Ordering::SeqCst);
    let began = Instant::now();
    let votes = Arc::new(Mutex::new(Vec::new()));
    for attempt in 1..=count {
        let votes = votes.clone();
        let reply = move |vote| votes.lock().unwrap().push(vote);
        world.send_about(&format!("k{attempt}"), 0, extend(attempt, 1), Millis(20_000), reply);
    }
    eventually("every vote", || async { (votes.lock().unwrap().len() == 10_000).then_some(()) }).await;
    let took = began.elapsed();
    let extended = votes.lock().unwrap().iter().filter(|vote| **vote == Vote::Extended).count();
    assert_eq!(extended, 10_000, "{:?}", world.status(0));
    // It has had no other state meanwhile.
    assert!(!watch.has_changed().unwrap(), "{:?}", world.status(0));
    assert_eq!(world.status(0).state, NodeState::Up);
    assert!(took > Duration::from_secs(2), "the server was busy for {took:?} only");
    // One read each second.
    let mut times: Vec<Instant> = vec![began];
    times.extend(tricks.observed.lock().unwrap().iter().filter(|at| **at > began));
    times.push(began + took);
    let longest = times.windows(2).map(|pair| pair[1].duration_since(pair[0])).max().unwrap();
    let most = Duration::from_secs(1) + Duration::from_millis(timeout.0);
    assert!(times.len() > 2 && longest < most, "no marker read for {longest:?} of {took:?}");
}
