//! A store that checks fencing tokens: it rejects a write with a smaller token than one it has seen.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

#[derive(Default)]
struct StoreState {
    newest: u64,
    accepted: usize,
    rejected: usize,
}

/// A store on a loopback port. Its thread ends with the test program.
pub struct Store {
    pub address: SocketAddr,
    state: Arc<Mutex<StoreState>>,
}

impl Store {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<StoreState>>::default();
        let shared = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { address, state }
    }

    /// How many writes were accepted, and how many rejected.
    pub fn writes(&self) -> (usize, usize) {
        let state = self.state.lock().unwrap();
        (state.accepted, state.rejected)
    }
}

fn serve(stream: TcpStream, state: &Mutex<StoreState>) {
    let Ok(mut answers) = stream.try_clone() else { return };
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let token: u64 = line.split(' ').next().unwrap().parse().unwrap();
        let is_accepted = {
            let mut state = state.lock().unwrap();
            let is_accepted = token >= state.newest;
            if is_accepted {
                state.newest = token;
                state.accepted += 1;
            } else {
                state.rejected += 1;
            }
            is_accepted
        };
        if answers.write_all(if is_accepted { b"ok\n" } else { b"no\n" }).is_err() {
            return;
        }
    }
}
