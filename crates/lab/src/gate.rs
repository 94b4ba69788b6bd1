//! A way to a server that can be closed to newcomers: who is connected already stays.

use std::{
    io,
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
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
        let (is_open, is_gone) = (open.clone(), gone.clone());
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
                    let _ = pass(client, server);
                }
            }
        });
        Ok(Self { address, open, gone })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on nobody comes in.
    pub fn close(&self) {
        self.open.store(false, Ordering::SeqCst);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::SeqCst);
        // Wakes the listener, which sees that it is gone.
        let _ = TcpStream::connect(self.address);
    }
}

/// Carries bytes both ways until either end is closed.
fn pass(client: TcpStream, server: TcpStream) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    for (mut from, mut to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
            let _ = from.shutdown(Shutdown::Both);
        });
    }
    Ok(())
}
