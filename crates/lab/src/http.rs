//! A minimal HTTP client for the servers that the lab starts. It blocks, and every read has a timeout.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

/// The read timeout, so that a hung server does not hang the test.
const SILENCE: Duration = Duration::from_secs(5);
/// The read timeout for a page of metrics, which takes longer with thousands of leases or on a busy machine.
const METRICS_SILENCE: Duration = Duration::from_secs(30);

/// The status code of an answer, and its body.
pub(crate) type Answer = io::Result<(u16, String)>;

pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    let stream = TcpStream::connect_timeout(&address, SILENCE)?;
    stream.set_read_timeout(Some(silence(path)))?;
    ask(stream, path)
}

pub(crate) fn get_from_socket(socket: &Path, path: &str) -> Answer {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(silence(path)))?;
    ask(stream, path)
}

fn silence(path: &str) -> Duration {
    if path == "/metrics" { METRICS_SILENCE } else { SILENCE }
}

/// HTTP/1.0: the server closes the connection after its answer, and sends no chunks.
fn ask(mut stream: impl Read + Write, path: &str) -> Answer {
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let broken = || io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(broken)?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(broken)?;
    Ok((code, body.to_owned()))
}
