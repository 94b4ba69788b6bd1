//! A Redis server with a wrong clock: a proxy that shifts the answer to TIME.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Stops serving when it is dropped.
pub struct WrongClock {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    accepting: Option<JoinHandle<()>>,
}

impl WrongClock {
    /// A clock that differs from that of `server` by so many seconds.
    pub fn before(server: SocketAddr, seconds: i64) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let (stopped, open) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<TcpStream>>>::default());
        let (stops, opened) = (stopped.clone(), open.clone());
        let accepting = std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if stops.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(server) = TcpStream::connect(server) else { continue };
                let clones = [client.try_clone(), server.try_clone()].into_iter().flatten();
                opened.lock().unwrap_or_else(PoisonError::into_inner).extend(clones);
                // Ends with the connection.
                std::thread::spawn(move || relay(client, server, seconds));
            }
        });
        Ok(Self { address, stopped, open, accepting: Some(accepting) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for WrongClock {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        drop(TcpStream::connect(self.address));
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        for stream in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Passes on one request and its reply at a time.
fn relay(client: TcpStream, server: TcpStream, seconds: i64) -> io::Result<()> {
    let (mut to_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let (mut from_client, mut from_server) = (BufReader::new(client), BufReader::new(server));
    loop {
        let request = value(&mut from_client)?;
        to_server.write_all(&request)?;
        let mut reply = value(&mut from_server)?;
        if request.to_ascii_uppercase().ends_with(b"\r\n$4\r\nTIME\r\n") {
            reply = shifted(&reply, seconds).ok_or(io::ErrorKind::InvalidData)?;
        }
        to_client.write_all(&reply)?;
    }
}

/// The bytes of one value of the Redis protocol.
fn value(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if from.read_until(b'\n', &mut bytes)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let number = str::from_utf8(&bytes[1..]).ok().and_then(|text| text.trim().parse::<i64>().ok());
    match (bytes[0], number.and_then(|number| u64::try_from(number).ok())) {
        (b'$', Some(length)) => {
            from.take(length + 2).read_to_end(&mut bytes)?;
        }
        (b'*', Some(count)) => {
            for _ in 0..count {
                bytes.extend(value(from)?);
            }
        }
        _ => {}
    }
    Ok(bytes)
}

/// The answer to TIME, with other seconds.
fn shifted(reply: &[u8], seconds: i64) -> Option<Vec<u8>> {
    let mut lines: Vec<String> = str::from_utf8(reply).ok()?.split("\r\n").map(str::to_owned).collect();
    let place = lines.get_mut(2)?;
    *place = (place.parse::<i64>().ok()? + seconds).to_string();
    Some(lines.join("\r\n").into_bytes())
}
