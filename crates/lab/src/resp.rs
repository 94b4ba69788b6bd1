//! A minimal client of the Redis protocol (RESP2). It blocks, and every read and write has a timeout.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// A reply of the server. An error reply to a single command is returned as the `Err` of the call instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A simple string, such as `+OK`.
    Simple(String),
    /// An error.
    Error(String),
    /// An integer.
    Integer(i64),
    /// A bulk string.
    Bulk(Vec<u8>),
    /// The nil reply: the key does not exist.
    Nil,
    /// An array of replies.
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

/// Sends one command on a new connection; with a password, AUTH is sent first.
pub(crate) fn call(
    address: SocketAddr,
    password: Option<&str>,
    command: &[&str],
    within: Duration,
) -> io::Result<Reply> {
    let command = command.iter().map(|&word| word.to_owned()).collect();
    match pipeline(address, password, &[command], within)?.pop() {
        Some(Reply::Error(message)) => Err(io::Error::other(message)),
        Some(reply) => Ok(reply),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Sends several commands together on a new connection and reads one reply for each; with a password, AUTH is sent
/// first. An error reply to one of the commands is a [`Reply::Error`].
pub(crate) fn pipeline(
    address: SocketAddr,
    password: Option<&str>,
    commands: &[Vec<String>],
    within: Duration,
) -> io::Result<Vec<Reply>> {
    let mut stream = TcpStream::connect_timeout(&address, within)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(within))?;
    stream.set_write_timeout(Some(within))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    if let Some(password) = password {
        stream.write_all(&request(&["AUTH".to_owned(), password.to_owned()])?)?;
        if let Reply::Error(message) = read(&mut reader)? {
            return Err(io::Error::other(message));
        }
    }
    let requests = commands.iter().map(|command| request(command)).collect::<io::Result<Vec<_>>>()?;
    stream.write_all(&requests.concat())?;
    commands.iter().map(|_| read(&mut reader)).collect()
}

/// A command as the protocol writes it.
fn request(command: &[String]) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    write!(request, "*{}\r\n", command.len())?;
    for word in command {
        write!(request, "${}\r\n{word}\r\n", word.len())?;
    }
    Ok(request)
}

fn read(reader: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
    }
    let line = line.trim_end();
    let (kind, rest) = line.split_at_checked(1).ok_or_else(|| malformed(line))?;
    let number = || rest.parse::<i64>().map_err(|_| malformed(line));
    // RESP2 encodes nil as a negative length.
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
        assert!(wire.is_empty(), "everything was read");
    }

    #[test]
    fn malformed_replies_are_errors() {
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
