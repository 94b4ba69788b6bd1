//! RedisLease as programs use it: the crate `redislease-locker`, in ordinary tokio tasks.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redislease_locker::{Locker, Request as LockRequest, Retry};
use serde_json::{Value, json};

use crate::protocol::{Gaps, HOLD, Request, STEP_ASIDE, Times, figures, say, unsupported};

const LONGEST: Duration = Duration::from_secs(60);
const PREFIX: &str = "library";
/// Longer than any measurement.
const WAIT: Duration = Duration::from_secs(3600);

#[derive(Default)]
pub struct Library {
    /// By the addresses of their servers.
    lockers: HashMap<Vec<String>, Locker>,
}

impl Library {
    pub async fn answer(&mut self, request: Request) -> Value {
        let urls = request.nodes.iter().map(|address| format!("redis://{address}"));
        let new = || {
            request.nodes.iter().for_each(|address| admit(address, &request.nodes));
            Locker::builder(urls).prefix(PREFIX).longest_lease(LONGEST).single_node().build().unwrap()
        };
        let locker = self.lockers.entry(request.nodes.clone()).or_insert_with(new).clone();
        locker.ready(Duration::from_secs(90)).await.unwrap();
        match request.what.as_str() {
            "cycles" => cycles(&locker, &request).await,
            "handover" => handover(&locker, &request).await,
            "renew" => renew(&locker, &request).await,
            _ => unsupported(),
        }
    }
}

/// Makes the server vote at once, as if it had waited for the longest lease. A server that does not answer stays as it is.
fn admit(address: &str, nodes: &[String]) {
    let admit = || -> std::io::Result<()> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"INFO server\r\n")?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let mut info = vec![0; line.trim_start_matches('$').trim().parse::<usize>().unwrap_or_default() + 2];
        reader.read_exact(&mut info)?;
        let info = String::from_utf8_lossy(&info);
        let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap_or_default();
        let mut names = nodes.to_vec();
        names.sort_unstable();
        let fingerprint = format!("programs;{};longest_lease={}ms", names.join(","), LONGEST.as_millis());
        write!(stream, "SET {PREFIX}:fence 1000000\r\nSET {PREFIX}:marker {run_id}:1:{fingerprint}\r\n")?;
        reader.read_line(&mut line)?;
        reader.read_line(&mut line)?;
        Ok(())
    };
    if let Err(error) = admit() {
        eprintln!("{address} is not admitted: {error}");
    }
}

fn lock(locker: &Locker, request: &Request, worker: usize) -> LockRequest {
    // As the peers do by default: a random delay of up to 100 ms before each new attempt.
    let retry = Retry::Constant(Duration::from_millis(100));
    locker.lock(request.key(worker)).ttl(request.ttl()).wait(WAIT).retry(retry)
}

/// Each cycle asks for a lock and awaits its release.
async fn cycles(locker: &Locker, request: &Request) -> Value {
    let start = Instant::now();
    let until = start + request.duration();
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..request.workers {
        let (locker, request) = (locker.clone(), request.clone());
        workers.spawn(async move {
            let mut times = Times::default();
            while Instant::now() < until {
                let began = Instant::now();
                let guard = lock(&locker, &request, worker).acquire().await.unwrap();
                times.acquire.push(began.elapsed());
                let began = Instant::now();
                guard.release().await;
                times.release.push(began.elapsed());
            }
            times
        });
    }
    let all = workers.join_all().await;
    figures(all, start.elapsed())
}

async fn handover(locker: &Locker, request: &Request) -> Value {
    let gaps = Arc::new(Gaps::new());
    let until = Instant::now() + request.duration();
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..request.workers {
        let (locker, request, gaps) = (locker.clone(), request.clone(), gaps.clone());
        workers.spawn(async move {
            while Instant::now() < until {
                let guard = lock(&locker, &request, 0).acquire().await.unwrap();
                gaps.acquired();
                tokio::time::sleep(HOLD).await;
                gaps.releasing();
                guard.release().await;
                tokio::time::sleep(STEP_ASIDE).await;
            }
        });
    }
    workers.join_all().await;
    gaps.figures()
}

async fn renew(locker: &Locker, request: &Request) -> Value {
    let began = Instant::now();
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..request.workers {
        let lock = lock(locker, request, worker);
        workers.spawn(async move { lock.acquire().await.unwrap() });
    }
    let guards = workers.join_all().await;
    say(&json!({"held": guards.len(), "seconds": began.elapsed().as_secs_f64()}));
    tokio::time::sleep(request.duration()).await;
    let lost = guards.iter().filter(|guard| guard.check().is_err()).count();
    say(&json!({"lost": lost}));
    json!({"done": true})
}
