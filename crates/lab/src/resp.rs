//! Just enough of the Redis protocol (RESP2) to send one command and read its reply. It blocks, and has a deadline.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// What a server answered. An error at the top is not a reply: it is the `Err` of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// `+OK` and its like.
    Simple(String),
    /// An error inside an array.
    Error(String),
    /// A number.
    Integer(i64),
    /// The bytes of a value.
    Bulk(Vec<u8>),
    /// No such key.
    Nil,
    /// Several replies.
    Array(Vec<Reply>),
}

impl Reply {
    /// The text of a simple or bulk reply.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Simple(text) => Some(text.clone()),
            Self::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        }
    }

    /// The number of an integer reply.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => None,
        }
    }
}

/// One command on a connection of its own; with a password, AUTH goes first.
pub(crate) fn call(
    address: SocketAddr,
    password: Option<&str>,
    command: &[&str],
    within: Duration,
) -> io::Result<Reply> {
    let mut stream = TcpStream::connect_timeout(&address, within)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(within))?;
    stream.set_write_timeout(Some(within))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut ask = |command: &[&str]| -> io::Result<Reply> {
        let mut request = Vec::new();
        write!(request, "*{}\r\n", command.len())?;
        for word in command {
            write!(request, "${}\r\n{word}\r\n", word.len())?;
        }
        stream.write_all(&request)?;
        match read(&mut reader)? {
            Reply::Error(message) => Err(io::Error::other(message)),
            reply => Ok(reply),
        }
    };
    if let Some(password) = password {
        ask(&["AUTH", password])?;
    }
    ask(command)
}

fn read(reader: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
    }
    let line = line.trim_end();
    let (kind, rest) = line.split_at_checked(1).ok_or_else(|| malformed(line))?;
    let number = || rest.parse::<i64>().map_err(|_| malformed(line));
    // A negative length is how RESP2 says nil.
    let length = || number().map(|length| usize::try_from(length).ok());
    Ok(match kind {
        "+" => Reply::Simple(rest.to_owned()),
        "-" => Reply::Error(rest.to_owned()),
        ":" => Reply::Integer(number()?),
        "$" => match length()? {
            None => Reply::Nil,
            Some(length) => {
                let mut bytes = vec![0; length + 2];
                reader.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Reply::Bulk(bytes)
            }
        },
        "*" => match length()? {
            None => Reply::Nil,
            Some(length) => Reply::Array((0..length).map(|_| read(reader)).collect::<io::Result<_>>()?),
        },
        _ => return Err(malformed(line)),
    })
}

fn malformed(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a RESP2 reply: {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_reply_is_read() {
        let mut wire: &[u8] = b"*6\r\n+OK\r\n-ERR no\r\n:-3\r\n$4\r\na\r\nb\r\n$-1\r\n*0\r\n";
        let reply = read(&mut wire).expect("well-formed");
        assert_eq!(
            reply,
            Reply::Array(vec![
                Reply::Simple("OK".into()),
                Reply::Error("ERR no".into()),
                Reply::Integer(-3),
                Reply::Bulk(b"a\r\nb".to_vec()),
                Reply::Nil,
                Reply::Array(vec![]),
            ])
        );
        assert!(wire.is_empty(), "all was read");
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        for (wire, message) in [
            ("", "the server closed the connection"),
            ("\r\n", "not a RESP2 reply: \"\""),
            ("HTTP/1.1 400\r\n", "not a RESP2 reply: \"HTTP/1.1 400\""),
            (":x\r\n", "not a RESP2 reply: \":x\""),
        ] {
            let error = read(&mut wire.as_bytes()).expect_err(wire);
            assert_eq!(error.to_string(), message);
        }
    }
}
