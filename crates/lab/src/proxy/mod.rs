//! A TCP proxy for a server on this machine, whose connections can be cut: for all clients, or for those of one process.
//! So one of several operators loses its connection to a server without network namespaces or root.

mod owner;

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
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
    /// New connections are reset at once, as when no process listens. Open ones continue.
    Refuse,
    /// Open connections are reset, and new ones at once.
    Reset,
    /// No data arrives in either direction, and no connection ends, as on a network that drops packets. After
    /// [`Proxy::restore`] the delayed data arrives.
    Hang,
    /// The server receives all data, and its replies are delayed until [`Proxy::restore`].
    HoldReplies,
}

/// A proxy for one server. Its connections last as long as those of their endpoints; without a cut it only forwards
/// bytes.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    /// How many seconds the clock of the server is ahead for its clients.
    wrong_by: i64,
    /// How long each reply takes.
    late: Duration,
    cuts: Mutex<Cuts>,
    changed: Condvar,
    links: Mutex<Vec<Weak<Link>>>,
    closed: AtomicBool,
}

#[derive(Debug, Default, Clone)]
struct Cuts {
    all: Option<Cut>,
    by_process: BTreeMap<u32, Cut>,
    /// How often they have changed.
    changes: u64,
}

impl Cuts {
    /// The cut that applies to a connection. Looks at every open file of each process that is cut.
    fn of(&self, link: &Link) -> Option<Cut> {
        if self.by_process.is_empty() {
            return self.all;
        }
        let owner = link.owner.get_or_init(|| link.find_owner());
        let own = self.by_process.iter().find(|(pid, _)| owner.is(**pid)).map(|(_, cut)| *cut);
        own.or(self.all)
    }
}

/// One connection of a client, and its continuation to the server.
#[derive(Debug)]
struct Link {
    client: TcpStream,
    server: TcpStream,
    /// It is looked for when a process is cut: the kernel's table of connections is long.
    owner: OnceLock<Owner>,
    /// The cut that applied to it after so many changes: to look for it takes long, and every message needs it.
    known: Mutex<(Option<u64>, Option<Cut>)>,
}

impl Proxy {
    /// Starts a proxy for `server`, on a loopback port that the kernel chooses.
    ///
    /// # Errors
    /// [`Error::Io`] when there is no port.
    pub fn to(server: SocketAddr) -> Result<Self> {
        Self::with(server, 0, Duration::ZERO)
    }

    /// The same for a Redis server, whose clock differs by so many seconds for the clients: the answers to TIME are changed.
    ///
    /// # Errors
    /// [`Error::Io`] when there is no port.
    pub fn with_wrong_clock(server: SocketAddr, seconds: i64) -> Result<Self> {
        Self::with(server, seconds, Duration::ZERO)
    }

    /// The same for a server whose replies take so long.
    ///
    /// # Errors
    /// [`Error::Io`] when there is no port.
    pub fn with_late_replies(server: SocketAddr, late: Duration) -> Result<Self> {
        Self::with(server, 0, late)
    }

    fn with(server: SocketAddr, wrong_by: i64, late: Duration) -> Result<Self> {
        let failed = |source| Error::Io { doing: format!("start a proxy before {server}"), source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            server,
            wrong_by,
            late,
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
                match client {
                    Ok(client) => {
                        let shared = accepting.clone();
                        // Identifying the client takes time: the next client does not wait for it.
                        thread::spawn(move || shared.serve(client));
                    }
                    // The process may have too many open files for a while.
                    Err(_) => thread::sleep(Duration::from_millis(10)),
                }
            }
        });
        Ok(Self { address, shared })
    }

    /// The address of the proxy.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts the connections of all clients, until [`restore`](Self::restore).
    pub fn cut(&self, cut: Cut) {
        self.shared.change(|cuts| cuts.all = Some(cut));
    }

    /// Cuts the connections of one process, until [`restore`](Self::restore); those of other processes continue.
    pub fn cut_process(&self, pid: u32, cut: Cut) {
        self.shared.change(|cuts| {
            // A process that has ended has no connections, and would be looked for again and again.
            cuts.by_process.retain(|pid, _| Path::new(&format!("/proc/{pid}")).exists());
            cuts.by_process.insert(pid, cut);
        });
    }

    /// Ends every cut.
    pub fn restore(&self) {
        self.shared.change(|cuts| (cuts.all, cuts.by_process) = Default::default());
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.restore();
        // Wakes the accepting thread, which then notices that the proxy is closed.
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

    /// The cut that applies to a connection now.
    fn cut_of(&self, link: &Link) -> Option<Cut> {
        let mut known = link.known.lock().unwrap_or_else(PoisonError::into_inner);
        let cuts = {
            let cuts = self.cuts();
            if known.0 == Some(cuts.changes) {
                return known.1;
            }
            cuts.clone()
        };
        // Other connections do not wait for this.
        *known = (Some(cuts.changes), cuts.of(link));
        known.1
    }

    /// Changes the cuts, and applies them to the open connections.
    fn change(&self, change: impl FnOnce(&mut Cuts)) {
        let mut cuts = self.cuts();
        change(&mut cuts);
        cuts.changes += 1;
        drop(cuts);
        self.changed.notify_all();
        let links: Vec<_> = self.links().iter().filter_map(Weak::upgrade).collect();
        for link in links {
            if self.cut_of(&link) == Some(Cut::Reset) {
                link.reset();
            }
        }
    }

    /// Forwards bytes in both directions until either end closes its connection, or it is cut.
    fn serve(self: Arc<Self>, client: TcpStream) {
        let Ok(server) = TcpStream::connect(self.server) else {
            reset_on_close(&client);
            return;
        };
        // Without it small messages would wait for an acknowledgement.
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        let link = Arc::new(Link { client, server, owner: OnceLock::new(), known: Mutex::default() });
        if matches!(self.cut_of(&link), Some(Cut::Refuse | Cut::Reset)) {
            reset_on_close(&link.client);
            return;
        }
        let mut links = self.links();
        links.retain(|link| link.strong_count() > 0);
        links.push(Arc::downgrade(&link));
        drop(links);
        let (shared, replies) = (self.clone(), link.clone());
        let holds = [Cut::Hang, Cut::HoldReplies];
        thread::spawn(move || {
            shared.carry(&replies, &replies.server, &replies.client, &holds, (shared.wrong_by, shared.late));
        });
        self.carry(&link, &link.client, &link.server, &[Cut::Hang], (0, Duration::ZERO));
    }

    /// Forwards bytes in one direction. They wait while one of `holds` applies. Answers to TIME are changed by so many seconds, and what
    /// is read at once is so late.
    fn carry(
        &self,
        link: &Link,
        mut from: &TcpStream,
        mut to: &TcpStream,
        holds: &[Cut],
        (wrong_by, late): (i64, Duration),
    ) {
        let mut buffer = [0; 16 * 1024];
        loop {
            let count = from.read(&mut buffer).unwrap_or(0);
            if wrong_by != 0 {
                shift_times(&mut buffer[..count], wrong_by);
            }
            thread::sleep(late);
            self.wait_while_held(link, holds);
            let ends = count == 0 || self.closed.load(Ordering::SeqCst);
            if ends || self.cut_of(link) == Some(Cut::Reset) || to.write_all(&buffer[..count]).is_err() {
                link.close();
                return;
            }
        }
    }

    fn wait_while_held(&self, link: &Link, holds: &[Cut]) {
        while self.cut_of(link).is_some_and(|cut| holds.contains(&cut)) {
            let cuts = self.cuts();
            // The cuts may have changed since the check; after a short wait they are checked again.
            drop(self.changed.wait_timeout(cuts, Duration::from_millis(20)));
        }
    }
}

impl Link {
    fn find_owner(&self) -> Owner {
        let addresses = (self.client.peer_addr(), self.client.local_addr());
        let (Ok(client), Ok(proxy)) = addresses else { return Owner::Unknown };
        Owner::of(client, proxy)
    }

    /// Resets the client's connection, instead of closing it in an orderly way.
    fn reset(&self) {
        reset_on_close(&self.client);
        // This wakes the reading threads; the last of them closes the connection.
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

/// Changes the answers to the Redis command TIME: an array of the seconds, which have ten digits, and the microseconds.
fn shift_times(replies: &mut [u8], seconds: i64) {
    const BEGIN: &[u8] = b"*2\r\n$10\r\n";
    let begins = replies.windows(BEGIN.len()).enumerate().filter(|(_, part)| *part == BEGIN);
    for place in begins.map(|(index, _)| index + BEGIN.len()).collect::<Vec<_>>() {
        let Some(digits) = replies.get_mut(place..place + 10) else { return };
        if let Some(shown) = str::from_utf8(digits).ok().and_then(|text| text.parse::<i64>().ok()) {
            digits.copy_from_slice(format!("{:010}", shown + seconds).as_bytes());
        }
    }
}

/// Makes the closing of a connection a reset.
fn reset_on_close(stream: &TcpStream) {
    // This fails for a connection that has ended, which needs no reset.
    let _: io::Result<()> = set_socket_linger(stream, Some(Duration::ZERO)).map_err(Into::into);
}
