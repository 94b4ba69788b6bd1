//! Just enough of HTTP to read a page from a server that we started. It blocks, and has a deadline.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

/// A page that takes longer is a failure; a hung server must not hang the test.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The status code of an answer, and its body.
pub(crate) type Answer = io::Result<(u16, String)>;

pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    let stream = TcpStream::connect_timeout(&address, ANSWER_WITHIN)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    ask(stream, path)
}

pub(crate) fn get_from_socket(socket: &Path, path: &str) -> Answer {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    ask(stream, path)
}

/// HTTP/1.0: the server closes the connection after its answer, and never sends it in chunks.
fn ask(mut stream: impl Read + Write, path: &str) -> Answer {
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let broken = || io::Error::new(io::ErrorKind::InvalidData, "it did not answer in HTTP");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(broken)?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(broken)?;
    Ok((code, body.to_owned()))
}
