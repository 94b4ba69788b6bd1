//! The command that the tests run: it writes the time again and again, to a log and to a store.
//!
//! It is this test program, called with the name of the ignored test below.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The pause between two lines, and the one shortly before the deadline and after it.
const PACE: Duration = Duration::from_millis(5);
const FAST_PACE: Duration = Duration::from_micros(300);
/// When the fast pace begins.
const NEAR_MS: u64 = 100;
/// The pause between two looks at the deadline file.
const LOOK_PACE: Duration = Duration::from_millis(30);
/// The pause between two writes to the store.
const STORE_PACE: Duration = Duration::from_millis(20);

/// A write to the store: it rejects a write with a smaller token than one that it has seen, and counts both.
const WRITE: &str = "local newest = tonumber(redis.call('HGET', KEYS[1], 'newest') or 0) \
                     local fits = tonumber(ARGV[1]) >= newest \
                     if fits then redis.call('HSET', KEYS[1], 'newest', ARGV[1]) end \
                     return redis.call('HINCRBY', KEYS[1], fits and 'accepted' or 'rejected', 1)";

/// The bytes of a line of the log.
pub const LINE: usize = 64;

/// `CLOCK_BOOTTIME` in nanoseconds.
pub fn boottime() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

/// The deadline in the text of a deadline file, in milliseconds of `CLOCK_BOOTTIME`.
pub fn deadline(text: &str) -> Option<u64> {
    text.split_once(r#""deadlineBoottimeMs":"#)?.1.split(',').next()?.parse().ok()
}

/// The command line of a worker.
pub fn command() -> Vec<OsString> {
    let program = std::env::current_exe().unwrap().into_os_string();
    [program]
        .into_iter()
        .chain(["--exact", "worker::works_until_it_is_killed", "--ignored", "--quiet"].map(OsString::from))
        .collect()
}

/// The command line of a worker, for a shell.
pub fn shell() -> String {
    command().iter().map(|word| format!("'{}'", word.to_str().unwrap())).collect::<Vec<_>>().join(" ")
}

#[test]
#[ignore = "the command of other tests; it does not end by itself"]
fn works_until_it_is_killed() {
    let (Some(log), Ok(token)) = (std::env::var_os("WORKER_LOG"), std::env::var("REDISLEASE_TOKEN")) else { return };
    let mut log = File::options().create(true).append(true).open(log).unwrap();
    let mut store = std::env::var("WORKER_STORE").ok().map(|store| {
        let (address, key) = store.split_once('/').unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        (BufReader::new(stream), format!("EVAL \"{WRITE}\" 1 {key} {token}\r\n"))
    });
    let deadline_file = std::env::var_os("REDISLEASE_DEADLINE_FILE");
    let (mut stored, mut looked, mut until) = (None, None, 0);
    let is_due = |last: Option<Instant>, pace: Duration| last.is_none_or(|last| last.elapsed() >= pace);
    loop {
        // One write each: a line is whole, also if the process is killed, because it is never on two pages of memory.
        log.write_all(format!("{:<1$}\n", format!("{token} {} {}", boottime(), until), LINE - 1).as_bytes()).unwrap();
        if let Some((stream, write)) = &mut store
            && is_due(stored, STORE_PACE)
        {
            stored = Some(Instant::now());
            stream.get_mut().write_all(write.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_line(&mut answer).unwrap();
            assert!(answer.starts_with(':'), "{answer}");
        }
        if is_due(looked, LOOK_PACE) {
            looked = Some(Instant::now());
            let text = deadline_file.as_ref().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
            until = deadline(&text).unwrap_or(until);
        }
        let is_near = until > 0 && boottime() / 1_000_000 + NEAR_MS >= until;
        std::thread::sleep(if is_near { FAST_PACE } else { PACE });
    }
}
