//! Finds the process of a connection on this machine in `/proc`.

use std::{fs, net::SocketAddr};

/// Which process has opened a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The one that has a file descriptor for the socket with this inode.
    Inode(u64),
    /// Unknown: the process has closed the connection, or ended.
    Unknown,
}

impl Owner {
    /// The owner of the socket at `client` that is connected to `server`.
    pub(super) fn of(client: SocketAddr, server: SocketAddr) -> Self {
        let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
        inode(&table, client, server).map_or(Self::Unknown, Self::Inode)
    }

    /// Whether it is this process.
    pub(super) fn is(self, pid: u32) -> bool {
        let Self::Inode(inode) = self else { return false };
        let socket = format!("socket:[{inode}]");
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).any(|link| link.as_os_str() == socket.as_str())
    }
}

/// Finds a connection in the kernel's table: its inode is the tenth column.
fn inode(table: &str, client: SocketAddr, server: SocketAddr) -> Option<u64> {
    let (client, server) = (in_table(client)?, in_table(server)?);
    // The table has thousands of lines on a busy machine.
    let lines = table.lines().filter(|line| line.contains(&client));
    let lines = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut found = lines.filter(|columns| columns.get(1) == Some(&&*client) && columns.get(2) == Some(&&*server));
    found.next()?.get(9)?.parse().ok().filter(|inode| *inode != 0)
}

/// `0100007F:1F90` for 127.0.0.1:8080 on a little-endian machine: the address as the kernel has it in memory.
fn in_table(address: SocketAddr) -> Option<String> {
    match address {
        SocketAddr::V4(address) => {
            Some(format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port()))
        }
        SocketAddr::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_belongs_to_the_process_that_opened_it() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let server = listener.local_addr().expect("its address");
        let client = TcpStream::connect(server).expect("a connection");
        let owner = Owner::of(client.local_addr().expect("its address"), server);
        assert!(owner.is(std::process::id()), "{owner:?}");
        assert!(!owner.is(1), "{owner:?}");
        assert!(!Owner::Unknown.is(std::process::id()));
    }

    #[test]
    fn a_connection_without_an_owner_has_none() {
        let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (client, server) = (address(8080), address(6379));
        let line = |inode| {
            let [client, server] = [client, server].map(|address| in_table(address).expect("version 4"));
            format!("   0: {client} {server} 01 00000000:00000000 00:00000000 00000000     0        0 {inode} 1\n")
        };
        assert_eq!(inode(&line(77), client, server), Some(77));
        assert_eq!(inode(&line(0), client, server), None);
        assert_eq!(inode(&line(77), server, client), None);
        assert_eq!(inode("", client, server), None);
    }
}
