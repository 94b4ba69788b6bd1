//! A way to a server that can be closed to newcomers, and that can hold back what the server says.

use std::{
    io::{self, Read},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use crate::{Error, Result};

/// One gate before one server. Connections through it live as long as their ends do.
#[derive(Debug)]
pub struct Gate {
    address: SocketAddr,
    open: Arc<AtomicBool>,
    gone: Arc<AtomicBool>,
    valve: Arc<Valve>,
}

impl Gate {
    /// Opens a gate before `server`, on a loopback port that the kernel gives.
    ///
    /// # Errors
    /// [`Error::Io`] when there is no port.
    pub fn before(server: SocketAddr) -> Result<Self> {
        let failed = |source| Error::Io { doing: format!("open a gate before {server}"), source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (open, gone) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let valve = Arc::<Valve>::default();
        let (is_open, is_gone, answers) = (open.clone(), gone.clone(), valve.clone());
        thread::spawn(move || {
            for client in listener.incoming() {
                if is_gone.load(Ordering::SeqCst) {
                    return;
                }
                // A newcomer before a closed gate is dropped at once.
                if is_open.load(Ordering::SeqCst)
                    && let Ok(client) = client
                    && let Ok(server) = TcpStream::connect(server)
                {
                    let _ = pass(client, server, answers.clone());
                }
            }
        });
        Ok(Self { address, open, gone, valve })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on nobody comes in.
    pub fn close(&self) {
        self.open.store(false, Ordering::SeqCst);
    }

    /// From now on the server hears all and is not heard, until [`let_go`](Self::let_go): nothing of it is lost.
    pub fn hold_answers(&self) {
        self.valve.set(true);
    }

    /// What the server has said meanwhile arrives.
    pub fn let_go(&self) {
        self.valve.set(false);
    }
}

/// Whether answers are held back.
#[derive(Debug, Default)]
struct Valve {
    shut: Mutex<bool>,
    moved: Condvar,
}

impl Valve {
    fn set(&self, shut: bool) {
        *self.shut.lock().unwrap_or_else(PoisonError::into_inner) = shut;
        self.moved.notify_all();
    }

    fn pass(&self) {
        let shut = self.shut.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.moved.wait_while(shut, |shut| *shut));
    }
}

/// What a server says, once it may be heard.
struct Answers {
    server: TcpStream,
    valve: Arc<Valve>,
}

impl Read for Answers {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.server.read(into);
        self.valve.pass();
        count
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::SeqCst);
        self.let_go();
        // Wakes the listener, which sees that it is gone.
        let _ = TcpStream::connect(self.address);
    }
}

/// Carries bytes both ways until either end is closed.
fn pass(client: TcpStream, server: TcpStream, valve: Arc<Valve>) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let answers = Answers { server: server.try_clone()?, valve };
    carry(client.try_clone()?, server.try_clone()?, [client.try_clone()?, server.try_clone()?]);
    carry(answers, client.try_clone()?, [client, server]);
    Ok(())
}

fn carry(mut from: impl Read + Send + 'static, mut to: TcpStream, ends: [TcpStream; 2]) {
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        for end in ends {
            let _ = end.shutdown(Shutdown::Both);
        }
    });
}
