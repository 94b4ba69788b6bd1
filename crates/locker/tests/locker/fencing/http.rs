//! An HTTP service that checks the header `Fencing-Token` before the effect.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::late_write::Store;

/// The greatest token, and the value.
type State = Arc<Mutex<(u64, String)>>;

pub struct Service {
    address: SocketAddr,
    state: State,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, state) = (listener.local_addr().unwrap(), State::default());
        let serving = state.clone();
        let thread = std::thread::spawn(move || {
            // A connection that sends nothing ends the service.
            while let Ok((stream, _)) = listener.accept()
                && serve(stream, &serving)
            {}
        });
        Self { address, state, thread: Some(thread) }
    }
}

/// Answers one request. Returns whether there was one.
fn serve(mut stream: TcpStream, state: &State) -> bool {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut token, mut length) = (None, 0);
    let mut lines = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return false;
        }
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            lines += 1;
            if lines == 1 {
                continue;
            }
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "fencing-token" => token = value.parse::<u64>().ok(),
            "content-length" => length = value.parse().unwrap_or(0),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let mut state = state.lock().unwrap();
    let status = match token {
        None => "428 Precondition Required",
        Some(token) if token < state.0 => "409 Conflict",
        Some(token) => {
            *state = (token, String::from_utf8(body).unwrap());
            "204 No Content"
        }
    };
    write!(stream, "HTTP/1.1 {status}\r\nConnection: close\r\n\r\n").unwrap();
    true
}

impl Service {
    /// The status of a PUT.
    fn put(&self, value: &str, token: Option<u64>) -> u16 {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let fencing = token.map(|token| format!("Fencing-Token: {token}\r\n")).unwrap_or_default();
        let length = value.len();
        write!(stream, "PUT /account HTTP/1.1\r\nHost: store\r\n{fencing}Content-Length: {length}\r\n\r\n{value}")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }
}

impl Store for Service {
    fn write(&self, value: &str, token: u64) -> bool {
        assert_eq!(self.put("anything", None), 428, "a client that sends no token is refused");
        let status = self.put(value, Some(token));
        assert!(matches!(status, 204 | 409), "{status}");
        status == 204
    }

    fn value(&self) -> String {
        self.state.lock().unwrap().1.clone()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            // A panic of the service is reported by the test that got no answer.
            let _ = thread.join();
        }
    }
}
