//! A bare pipelined connection: bytes out, replies of scripts in. Its socket never blocks, and only ready sockets are read.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use rustix::event::{PollFd, PollFlags, poll};

/// Which command a reply belongs to.
#[derive(Clone, Copy)]
pub struct Tag {
    pub lane: usize,
    pub cycle: u64,
    pub phase: u8,
}

pub struct Connection {
    stream: TcpStream,
    pub out: Vec<u8>,
    /// One entry for each call: the commands in it.
    sent: VecDeque<Vec<Tag>>,
    /// What was read. The first `filled` bytes are of replies that have not arrived completely.
    buffer: Vec<u8>,
    filled: usize,
}

impl Connection {
    pub fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
        Self { stream, out: Vec::new(), sent: VecDeque::new(), buffer: vec![0; 65536], filled: 0 }
    }

    /// Appends a command, which is sent with the next [`flush`](Self::flush).
    pub fn send(&mut self, command: &[u8], tag: Tag) {
        self.send_many(command, vec![tag]);
    }

    /// Appends one call of several commands.
    pub fn send_many(&mut self, command: &[u8], tags: Vec<Tag>) {
        self.out.extend_from_slice(command);
        self.sent.push_back(tags);
    }

    /// Sends what is waiting. What the socket does not take at once is sent after the next wait.
    pub fn flush(&mut self) {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(count) => drop(self.out.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub fn in_flight(&self) -> usize {
        self.sent.len()
    }

    /// Reads what has arrived, without waiting, and passes on each reply, or each answer in a reply to votes. One read is
    /// enough: what does not fit makes the socket ready again.
    pub fn receive(&mut self, mut take: impl FnMut(Tag, &[&[u8]])) {
        if self.filled == self.buffer.len() {
            self.buffer.resize(2 * self.filled, 0);
        }
        match self.stream.read(&mut self.buffer[self.filled..]) {
            Ok(0) => panic!("the server closed the connection"),
            Ok(count) => self.filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => panic!("{error}"),
        }
        let mut start = 0;
        while let Some((parts, length)) = reply(&self.buffer[start..self.filled]) {
            let tags = self.sent.pop_front().unwrap();
            if let [_, _, b"votes" | b"ends", answers @ ..] = &parts[..] {
                assert_eq!(
                    tags.len(),
                    answers.len(),
                    "{}",
                    String::from_utf8_lossy(&self.buffer[start..start + length])
                );
                tags.into_iter().zip(answers).for_each(|(tag, answer)| take(tag, &[*answer]));
            } else {
                take(tags[0], &parts);
            }
            start += length;
        }
        self.buffer.copy_within(start..self.filled, 0);
        self.filled -= start;
    }
}

/// Waits until a connection has something to read, or takes bytes that wait. By connection: whether it has something to read.
pub fn wait(connections: &mut [Connection]) -> Vec<bool> {
    let wanted = |connection: &Connection| match connection.out.is_empty() {
        true => PollFlags::IN,
        false => PollFlags::IN | PollFlags::OUT,
    };
    let mut fds: Vec<PollFd<'_>> =
        connections.iter().map(|connection| PollFd::new(&connection.stream, wanted(connection))).collect();
    poll(&mut fds, None).unwrap();
    let ready = fds.iter().map(|fd| fd.revents().difference(PollFlags::OUT) != PollFlags::empty()).collect();
    connections.iter_mut().for_each(Connection::flush);
    ready
}

/// The parts of the first reply in `bytes` as texts, and its length; `None` if it has not arrived completely. Numbers and
/// texts look alike. A list in a reply is a refusal, which does not occur here.
fn reply(bytes: &[u8]) -> Option<(Vec<&[u8]>, usize)> {
    let (head, mut place) = line(bytes, 0)?;
    if head[0] != b'*' {
        let (part, end) = part(bytes, 0)?;
        return Some((vec![part], end));
    }
    let mut parts = Vec::new();
    for _ in 0..number(&head[1..]) {
        let (next, end) = part(bytes, place)?;
        parts.push(next);
        place = end;
    }
    Some((parts, place))
}

/// The line at `place`, and where the next one begins.
fn line(bytes: &[u8], place: usize) -> Option<(&[u8], usize)> {
    let end = bytes.get(place..)?.iter().position(|byte| *byte == b'\r')? + place;
    (end + 1 < bytes.len()).then(|| (&bytes[place..end], end + 2))
}

/// The number or text at `place`, and where the next one begins.
fn part(bytes: &[u8], place: usize) -> Option<(&[u8], usize)> {
    let (head, next) = line(bytes, place)?;
    assert!(head[0] != b'-' && head[0] != b'*', "{}", String::from_utf8_lossy(bytes));
    if head[0] != b'$' || head[1] == b'-' {
        return Some((&head[1..], next));
    }
    let end = next + number(&head[1..]);
    (end + 2 <= bytes.len()).then(|| (&bytes[next..end], end + 2))
}

pub fn number(text: &[u8]) -> usize {
    text.iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
}
