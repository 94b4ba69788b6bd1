//! A socket between two processes that carries messages, and file descriptors with them.
//!
//! The socket is the standard input of the helper process, so no process has to find a descriptor by its number.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest message, in bytes.
const MAX_MESSAGE: usize = 16 * 1024;

/// One end of a socket pair. Each message is one packet.
#[derive(Debug)]
pub struct Channel(OwnedFd);

/// A received message, and the descriptor that came with it.
#[derive(Debug)]
pub struct Received<T> {
    pub message: T,
    pub fd: Option<OwnedFd>,
}

impl Channel {
    /// Two connected ends. Both are closed in programs that this process executes.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(one), Self(other)))
    }

    /// The end that the parent process gave to this process as its standard input.
    pub fn of_stdin() -> io::Result<Self> {
        Ok(Self(io::stdin().as_fd().try_clone_to_owned()?))
    }

    /// The descriptor for the standard input of a child process.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// Sends a message without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the other process has not read for long; another error if it is gone.
    pub fn send(&self, message: &impl Serialize, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        if text.len() > MAX_MESSAGE {
            let problem = format!(
                "a message to a helper process has {} bytes, and at most {MAX_MESSAGE} are possible",
                text.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&fds));
        }
        sendmsg(&self.0, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Receives a message. `None` if the other process has closed its end, which it also has when it has ended.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is no message and `wait` is false.
    pub fn receive<T: DeserializeOwned>(&self, wait: bool) -> io::Result<Option<Received<T>>> {
        let mut text = [0; MAX_MESSAGE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        let read = loop {
            match recvmsg(&self.0, &mut [IoSliceMut::new(&mut text)], &mut control, flags | RecvFlags::CMSG_CLOEXEC) {
                Ok(read) => break read.bytes,
                // The other process ended with messages unread: the kernel says so once, before the messages that it had sent.
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
                Err(error) => return Err(error.into()),
            }
        };
        if read == 0 {
            return Ok(None);
        }
        let mut fd = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                fd = fds.into_iter().next().or(fd);
            }
        }
        Ok(Some(Received { message: serde_json::from_slice(&text[..read])?, fd }))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl std::os::fd::AsRawFd for Channel {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::message::Report;

    #[test]
    fn a_message_carries_a_descriptor_and_the_end_is_seen() {
        let (one, other) = Channel::pair().unwrap();
        assert_eq!(one.receive::<Report>(false).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let (mut reader, writer) = io::pipe().unwrap();
        other.send(&Report::Stopping, Some(writer.as_fd())).unwrap();
        drop(writer);
        let received = one.receive::<Report>(true).unwrap().unwrap();
        assert_eq!(received.message, Report::Stopping);
        io::Write::write_all(&mut io::PipeWriter::from(received.fd.unwrap()), b"x").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
        drop(other);
        assert!(one.receive::<Report>(true).unwrap().is_none());
    }

    /// A renewal may reach a process that is just about to end.
    #[test]
    fn the_last_messages_of_a_process_that_left_others_unread_arrive() {
        let (one, other) = Channel::pair().unwrap();
        one.send(&Report::Stopping, None).unwrap();
        other.send(&Report::Refused("why".into()), None).unwrap();
        drop(other);
        assert_eq!(one.receive::<Report>(false).unwrap().unwrap().message, Report::Refused("why".into()));
        // A process that another test starts has a copy of each socket until it executes its program.
        let until = Instant::now() + Duration::from_secs(10);
        let is_open = |end: &io::Result<_>| end.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        let mut end = one.receive::<Report>(false);
        while is_open(&end) && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
            end = one.receive(false);
        }
        assert!(end.unwrap().is_none());
    }

    #[test]
    fn a_process_that_does_not_read_is_an_error_and_not_a_wait() {
        let (one, _other) = Channel::pair().unwrap();
        let refused = (0..100_000).find_map(|_| one.send(&Report::Stopping, None).err());
        assert_eq!(refused.unwrap().kind(), io::ErrorKind::WouldBlock);
        let long = Report::Note("x".repeat(MAX_MESSAGE));
        assert_eq!(one.send(&long, None).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
