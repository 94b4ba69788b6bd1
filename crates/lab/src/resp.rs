//! Commands to a Redis server on new connections. They block, and every read and write has a timeout.

use std::{
    io::{self, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use redis::{Cmd, Parser, Value};

/// A reply of the server. An error reply to a single command is returned as the `Err` of the call instead.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply(pub Value);

impl Reply {
    /// The text of a simple or bulk reply.
    pub fn text(&self) -> Option<String> {
        match &self.0 {
            Value::Okay => Some("OK".to_owned()),
            Value::SimpleString(text) => Some(text.clone()),
            Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        }
    }

    /// The number of an integer reply.
    pub fn integer(&self) -> Option<i64> {
        match self.0 {
            Value::Int(number) => Some(number),
            _ => None,
        }
    }

    /// An error reply as an `Err`, with the text that the server sent.
    fn checked(self) -> io::Result<Self> {
        match &self.0 {
            Value::ServerError(error) => {
                Err(io::Error::other(format!("{} {}", error.code(), error.details().unwrap_or_default())))
            }
            _ => Ok(self),
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
    pipeline(address, password, &[command], within)?.remove(0).checked()
}

/// Sends several commands together on a new connection and reads one reply for each; with a password, AUTH is sent
/// first. An error reply to one of the commands is a [`Value::ServerError`].
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
    let mut parser = Parser::new();
    let mut read = |stream: &TcpStream| parser.parse_value(stream).map(Reply).map_err(io::Error::other);
    if let Some(password) = password {
        stream.write_all(&redis::cmd("AUTH").arg(password).get_packed_command())?;
        read(&stream)?.checked()?;
    }
    let requests: Vec<_> = commands.iter().map(|command| Cmd::new().arg(command).get_packed_command()).collect();
    stream.write_all(&requests.concat())?;
    commands.iter().map(|_| read(&stream)).collect()
}
