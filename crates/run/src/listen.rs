//! A small HTTP server that says whether this process holds the lock.
//!
//! It serves GET requests, one for each connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use crate::clock::BootTime;
use crate::options::Lease;

/// The most connections at a time; others wait in the queue of the kernel.
const MAX_CONNECTIONS: usize = 32;
/// The most of them that follow the events: they stay, and the others must get an answer.
const MAX_FOLLOWERS: usize = 16;
/// The longest request, in bytes.
const MAX_REQUEST: usize = 4096;
/// The time for a request to arrive, and for an answer to be taken.
const REQUEST_WITHIN: Duration = Duration::from_secs(5);

/// After this time without a sign of life, a client that follows the events loses its place.
const VANISHED_WITHIN: Duration = Duration::from_mins(1);

/// What the server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    lease: String,
    holder: String,
    /// The token, and when the command gets the stop signal unless the lock is renewed. `None` while the lock is not held.
    pub term: Option<(u64, BootTime)>,
}

impl Status {
    pub fn new(lease: &Lease, holder: &str) -> Self {
        Self { lease: lease.to_string(), holder: holder.to_owned(), term: None }
    }

    /// The validity at `now`, in milliseconds; zero without the lock.
    fn valid_for_ms(&self, now: BootTime) -> u64 {
        self.term.map_or(0, |(_, until)| until.0.saturating_sub(now.0))
    }

    fn is_active(&self, now: BootTime) -> bool {
        self.valid_for_ms(now) > 0
    }

    fn json(&self, now: BootTime) -> String {
        let token = self.term.filter(|_| self.is_active(now)).map(|(token, _)| token);
        json!({
            "lease": self.lease,
            "holder": self.holder,
            "active": self.is_active(now),
            "token": token,
            "validForMs": self.valid_for_ms(now),
        })
        .to_string()
    }
}

/// Starts the server, in the present tokio runtime. Returns its address.
///
/// # Errors
/// The address cannot be used.
pub async fn start(address: SocketAddr, statuses: watch::Receiver<Status>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let followers = Arc::new(Semaphore::new(MAX_FOLLOWERS));
    tokio::spawn(async move {
        loop {
            let Ok(slot) = slots.clone().acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else {
                // No descriptor is free, for example.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let (statuses, followers) = (statuses.clone(), followers.clone());
            tokio::spawn(async move {
                // A client that goes away needs no answer.
                let _ = serve(stream, statuses, &followers).await;
                drop(slot);
            });
        }
    });
    Ok(address)
}

async fn serve(mut stream: TcpStream, statuses: watch::Receiver<Status>, followers: &Semaphore) -> io::Result<()> {
    let Ok(head) = tokio::time::timeout(REQUEST_WITHIN, read_head(&mut stream)).await else { return Ok(()) };
    let path = path(&head?).map(str::to_owned);
    let answer = if path.as_deref() == Some("/events") {
        if let Ok(_follower) = followers.try_acquire() {
            return events(stream, statuses).await;
        }
        response("503 Service Unavailable", "too many clients follow the events\n", "text/plain")
    } else {
        answer(path.as_deref(), &statuses.borrow().clone(), BootTime::now())
    };
    write(&mut stream, &answer).await?;
    stream.shutdown().await
}

/// A client that does not read must not keep its place.
async fn write(stream: &mut TcpStream, text: &str) -> io::Result<()> {
    tokio::time::timeout(REQUEST_WITHIN, stream.write_all(text.as_bytes())).await?
}

async fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    let mut part = [0; 512];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut part).await?;
        if read == 0 || head.len() + read > MAX_REQUEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.extend_from_slice(&part[..read]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// The path of a GET request; `None` for another request.
fn path(head: &str) -> Option<&str> {
    let target = head.strip_prefix("GET ")?.split(' ').next()?;
    target.split('?').next()
}

fn answer(path: Option<&str>, status: &Status, now: BootTime) -> String {
    match path {
        None => response("405 Method Not Allowed", "use GET\n", "text/plain"),
        Some("/active") if status.is_active(now) => response("200 OK", "active\n", "text/plain"),
        Some("/active") => response("503 Service Unavailable", "not active\n", "text/plain"),
        // As the leader elector of Kubernetes answers.
        Some("/") => {
            let name = if status.is_active(now) { status.holder.as_str() } else { "" };
            response("200 OK", &json!({ "name": name }).to_string(), "application/json")
        }
        Some("/lease") => response("200 OK", &status.json(now), "application/json"),
        Some(_) => response("404 Not Found", "use /active, /, /lease or /events\n", "text/plain"),
    }
}

fn response(code: &str, body: &str, kind: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{body}"
    )
}

/// Lets the kernel close the connection when the machine of the client has vanished. While nothing changes, nothing is sent that it would
/// have to acknowledge.
fn notice_vanished(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_keepidle(stream, VANISHED_WITHIN / 2)?;
    sockopt::set_tcp_keepintvl(stream, VANISHED_WITHIN / 6)?;
    sockopt::set_tcp_user_timeout(stream, u32::try_from(VANISHED_WITHIN.as_millis()).unwrap_or(u32::MAX))?;
    Ok(sockopt::set_socket_keepalive(stream, true)?)
}

/// Server-sent events: the status now, and after each change.
async fn events(mut stream: TcpStream, mut statuses: watch::Receiver<Status>) -> io::Result<()> {
    notice_vanished(&stream)?;
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n";
    write(&mut stream, head).await?;
    let mut byte = [0; 1];
    loop {
        let event = format!("data: {}\n\n", statuses.borrow_and_update().json(BootTime::now()));
        write(&mut stream, &event).await?;
        tokio::select! {
            changed = statuses.changed() => if changed.is_err() { return Ok(()) },
            // The client has closed the connection, or sends what it should not.
            _ = stream.read(&mut byte) => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(term: Option<(u64, BootTime)>) -> Status {
        Status { lease: "a/b".into(), holder: "h".into(), term }
    }

    #[test]
    fn answers_depend_on_the_time() {
        let held = status(Some((7, BootTime(100))));
        let code = |path: &str, status: &Status, now: u64| answer(Some(path), status, BootTime(now))[9..12].to_owned();
        assert_eq!(code("/active", &held, 99), "200");
        assert_eq!(code("/active", &held, 100), "503");
        assert_eq!(code("/active", &status(None), 0), "503");
        assert_eq!(code("/absent", &held, 99), "404");
        assert!(answer(Some("/"), &held, BootTime(99)).ends_with(r#"{"name":"h"}"#));
        assert!(answer(Some("/"), &held, BootTime(100)).ends_with(r#"{"name":""}"#));
        let json = held.json(BootTime(40));
        assert!(json.contains(r#""token":7"#) && json.contains(r#""validForMs":60"#), "{json}");
        assert!(held.json(BootTime(100)).contains(r#""token":null"#));
    }

    #[tokio::test]
    async fn a_follower_whose_machine_vanishes_loses_its_place() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        notice_vanished(&stream).unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), Duration::from_secs(30));
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 60_000);
    }

    #[test]
    fn only_get_requests_have_a_path() {
        assert_eq!(path("GET /lease?x=1 HTTP/1.1\r\n\r\n"), Some("/lease"));
        assert_eq!(path("POST / HTTP/1.1\r\n\r\n"), None);
        assert!(answer(None, &status(None), BootTime(0)).starts_with("HTTP/1.1 405"));
    }
}
