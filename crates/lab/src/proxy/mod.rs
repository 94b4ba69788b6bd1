//! A TCP proxy before a server on this machine, whose connections can be cut: for every client, or for the connections
//! of one process. So one of several operators loses a server that the others keep, without network namespaces or root.

mod owner;

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::net::sockopt::set_socket_linger;

use self::owner::Owner;
use crate::{Error, Result};

/// How a connection fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// New connections are reset at once, as when nobody listens. Open ones go on.
    Refuse,
    /// Open connections are reset, and new ones at once.
    Reset,
    /// Nothing arrives in either direction, and no connection ends, as on a network that drops packets. After
    /// [`Proxy::restore`] what was sent meanwhile arrives.
    Hang,
    /// The server receives everything, and its replies are held back until [`Proxy::restore`].
    HoldReplies,
}

/// A proxy before one server. Its connections live as long as their ends do; without a cut it only passes bytes on.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    cuts: Mutex<Cuts>,
    changed: Condvar,
    links: Mutex<Vec<Weak<Link>>>,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Cuts {
    all: Option<Cut>,
    by_process: BTreeMap<u32, Cut>,
}

/// One connection of a client, and its continuation to the server.
#[derive(Debug)]
struct Link {
    client: TcpStream,
    server: TcpStream,
    owner: Owner,
}

impl Proxy {
    /// Starts a proxy before `server`, on a loopback port that the kernel gives.
    ///
    /// # Errors
    /// [`Error::Io`] when there is no port.
    pub fn to(server: SocketAddr) -> Result<Self> {
        let failed = |source| Error::Io { doing: format!("start a proxy before {server}"), source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            server,
            cuts: Mutex::default(),
            changed: Condvar::new(),
            links: Mutex::default(),
            closed: AtomicBool::new(false),
        });
        let accepting = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                if accepting.closed.load(Ordering::SeqCst) {
                    return;
                }
                if let Ok(client) = client {
                    let shared = accepting.clone();
                    // Who the client is takes a look at its process: the next client does not wait for it.
                    thread::spawn(move || shared.serve(client, address));
                }
            }
        });
        Ok(Self { address, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts the connections of all clients, until [`restore`](Self::restore).
    pub fn cut(&self, cut: Cut) {
        self.shared.cuts().all = Some(cut);
        self.shared.apply();
    }

    /// Cuts the connections of one process, until [`restore`](Self::restore); those of others go on.
    pub fn cut_process(&self, pid: u32, cut: Cut) {
        self.shared.cuts().by_process.insert(pid, cut);
        self.shared.apply();
    }

    /// Ends every cut.
    pub fn restore(&self) {
        *self.shared.cuts() = Cuts::default();
        self.shared.apply();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.restore();
        // Wakes the thread that accepts, which sees that the proxy is closed.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn cuts(&self) -> MutexGuard<'_, Cuts> {
        self.cuts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn links(&self) -> MutexGuard<'_, Vec<Weak<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What applies to a connection now.
    fn cut_of(&self, owner: &Owner) -> Option<Cut> {
        let cuts = self.cuts();
        let own = cuts.by_process.iter().find(|(pid, _)| owner.is(**pid)).map(|(_, cut)| *cut);
        own.or(cuts.all)
    }

    /// Applies the cuts to the open connections.
    fn apply(&self) {
        self.changed.notify_all();
        let links: Vec<_> = self.links().iter().filter_map(Weak::upgrade).collect();
        for link in links {
            if self.cut_of(&link.owner) == Some(Cut::Reset) {
                link.reset();
            }
        }
    }

    /// Passes bytes both ways until either end closes its connection, or it is cut.
    fn serve(self: Arc<Self>, client: TcpStream, listens: SocketAddr) {
        let owner = client.peer_addr().map_or(Owner::Unknown, |client| Owner::of(client, listens));
        if matches!(self.cut_of(&owner), Some(Cut::Refuse | Cut::Reset)) {
            reset_on_close(&client);
            return;
        }
        let Ok(server) = TcpStream::connect(self.server) else {
            reset_on_close(&client);
            return;
        };
        // Without it small messages would wait for an acknowledgement; it changes nothing else.
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        let link = Arc::new(Link { client, server, owner });
        let mut links = self.links();
        links.retain(|link| link.strong_count() > 0);
        links.push(Arc::downgrade(&link));
        drop(links);
        let (shared, replies) = (self.clone(), link.clone());
        thread::spawn(move || shared.carry(&replies, &replies.server, &replies.client, &[Cut::Hang, Cut::HoldReplies]));
        self.carry(&link, &link.client, &link.server, &[Cut::Hang]);
    }

    /// Carries bytes in one direction. While one of `holds` is in force they wait.
    fn carry(&self, link: &Link, mut from: &TcpStream, mut to: &TcpStream, holds: &[Cut]) {
        let mut buffer = [0; 16 * 1024];
        loop {
            let count = from.read(&mut buffer).unwrap_or(0);
            self.wait_while_held(link, holds);
            let ends = count == 0 || self.closed.load(Ordering::SeqCst);
            if ends || self.cut_of(&link.owner) == Some(Cut::Reset) || to.write_all(&buffer[..count]).is_err() {
                link.close();
                return;
            }
        }
    }

    fn wait_while_held(&self, link: &Link, holds: &[Cut]) {
        while self.cut_of(&link.owner).is_some_and(|cut| holds.contains(&cut)) {
            let cuts = self.cuts();
            // The cuts may have changed since they were looked at: a short wait needs no care for that.
            drop(self.changed.wait_timeout(cuts, Duration::from_millis(20)));
        }
    }
}

impl Link {
    /// Resets the connection of the client: it sees no orderly end.
    fn reset(&self) {
        reset_on_close(&self.client);
        // The threads that read wake up, and with the last of them the connection is closed.
        let _ = self.client.shutdown(Shutdown::Read);
        let _ = self.server.shutdown(Shutdown::Both);
    }

    /// Ends both connections, so that the other direction ends too.
    fn close(&self) {
        let resets = rustix::net::sockopt::socket_linger(&self.client).is_ok_and(|linger| linger.is_some());
        let _ = self.client.shutdown(if resets { Shutdown::Read } else { Shutdown::Both });
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

/// Lets a connection end with a reset when it is closed.
fn reset_on_close(stream: &TcpStream) {
    // It fails for a connection that has ended, and then nothing is left to reset.
    let _: io::Result<()> = set_socket_linger(stream, Some(Duration::ZERO)).map_err(Into::into);
}
