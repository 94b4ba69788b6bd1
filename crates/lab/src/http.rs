//! A minimal HTTP client for the servers that the lab starts. It blocks, and every read has a timeout.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

/// The read timeout, so that a hung server does not hang the test.
const SILENCE: Duration = Duration::from_secs(15);
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

/// Sends a body with PATCH.
pub(crate) fn patch_to_socket(socket: &Path, path: &str, content_type: &str, body: &str) -> Answer {
    let mut stream = UnixStream::connect(socket)?;
    // An admission webhook may take as long.
    stream.set_read_timeout(Some(METRICS_SILENCE))?;
    let length = body.len();
    write!(
        stream,
        "PATCH {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    answered(stream)
}

fn silence(path: &str) -> Duration {
    if path == "/metrics" { METRICS_SILENCE } else { SILENCE }
}

/// HTTP/1.1: the answer says where it ends. With HTTP/1.0, a page that the server breaks off looks like a whole one.
fn ask(mut stream: impl Read + Write, path: &str) -> Answer {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    answered(stream)
}

fn answered(mut stream: impl Read) -> Answer {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    parse(&answer)
}

fn parse(answer: &[u8]) -> Answer {
    let error = |kind, text| io::Error::new(kind, text);
    let broken = || error(io::ErrorKind::InvalidData, "the answer is not HTTP");
    let (head, body) = split_once(answer, b"\r\n\r\n").ok_or_else(broken)?;
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(broken)?;
    let header = |name: &str| {
        let mut headers = head.lines().skip(1).filter_map(|line| line.split_once(':'));
        headers.find(|(known, _)| *known == name).map(|(_, value)| value.trim())
    };
    let whole = match (header("transfer-encoding"), header("content-length")) {
        (Some("chunked"), _) => chunks(body),
        (None, Some(length)) => length.parse().ok().and_then(|length: usize| body.get(..length)).map(<[u8]>::to_vec),
        _ => return Err(error(io::ErrorKind::InvalidData, "the answer does not say where it ends")),
    };
    let whole = whole.ok_or_else(|| error(io::ErrorKind::UnexpectedEof, "the answer breaks off"))?;
    Ok((code, String::from_utf8_lossy(&whole).into_owned()))
}

/// The content of the chunks; `None` without the empty chunk at the end.
fn chunks(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let (size, following) = split_once(rest, b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(size).ok()?, 16).ok()?;
        if size == 0 {
            return Some(whole);
        }
        whole.extend_from_slice(following.get(..size)?);
        rest = following.get(size..)?.strip_prefix(b"\r\n")?;
    }
}

fn split_once<'a>(bytes: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes.windows(separator.len()).position(|window| window == separator)?;
    Some((&bytes[..at], &bytes[at + separator.len()..]))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// The answer of a server that sends these bytes and closes the connection.
    fn answer_to(sent: String) -> Answer {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let serving = thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                asked.extend(byte);
            }
            stream.write_all(sent.as_bytes()).unwrap();
        });
        let answer = get(address, "/metrics");
        serving.join().unwrap();
        answer
    }

    #[test]
    fn an_answer_that_breaks_off_is_an_error() {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nup 1\n\r\nb\r\ndown{x=\"ü\"\r\n4\r\n} 2\n\r\n0\r\n\r\n";
        assert_eq!(answer_to(chunked.to_owned()).unwrap(), (200, "up 1\ndown{x=\"ü\"} 2\n".to_owned()));
        let measured = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 8\r\n\r\nwaiting\n";
        assert_eq!(answer_to(measured.to_owned()).unwrap(), (503, "waiting\n".to_owned()));
        for whole in [chunked.strip_suffix("0\r\n\r\n").unwrap(), measured] {
            let head = whole.find("\r\n\r\n").unwrap() + 4;
            for end in (head..whole.len()).filter(|end| whole.is_char_boundary(*end)) {
                let error = answer_to(whole[..end].to_owned()).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "after {end} bytes: {error}");
            }
        }
        let endless = answer_to("HTTP/1.0 200 OK\r\n\r\nup 1\n".to_owned()).unwrap_err();
        assert_eq!(endless.to_string(), "the answer does not say where it ends");
    }
}
