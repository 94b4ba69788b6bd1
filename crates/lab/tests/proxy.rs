//! Connections through a proxy, cut for all clients and for one process. Needs redis-server and bash.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use redislease_lab::{Cut, Proxy, RedisServer, Result};

/// The timeout for data that must arrive.
const SOON: Duration = Duration::from_secs(10);
/// Data that has not arrived after this time is delayed by the cut.
const NOTHING: Duration = Duration::from_millis(300);

/// One line, or the kind of the error. The end of the connection is an error.
type Reply = std::result::Result<String, ErrorKind>;

/// A connection of this process.
struct Client(TcpStream);

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(SOON)).expect("a timeout");
        Self(stream)
    }

    fn send(&mut self, command: &str) -> std::io::Result<()> {
        self.0.write_all(format!("{command}\r\n").as_bytes())
    }

    fn receive(&mut self, within: Duration) -> Reply {
        self.0.set_read_timeout(Some(within)).map_err(|error| error.kind())?;
        let mut reply = [0; 64];
        match self.0.read(&mut reply) {
            Ok(0) => Err(ErrorKind::UnexpectedEof),
            Ok(count) => Ok(String::from_utf8_lossy(&reply[..count]).trim().to_owned()),
            Err(error) => Err(error.kind()),
        }
    }

    fn ping(&mut self) -> Reply {
        self.send("PING").map_err(|error| error.kind())?;
        self.receive(SOON)
    }
}

/// A connection of another process, which forwards lines and prints the reply to each.
struct Other {
    child: Child,
    input: ChildStdin,
    output: std::io::BufReader<ChildStdout>,
}

impl Other {
    fn connect(address: SocketAddr) -> Self {
        let script = r#"
            trap "" PIPE
            exec 3<>"/dev/tcp/127.0.0.1/$0" || exit 1
            while read -r line; do
                printf '%s\r\n' "$line" >&3 2>&1
                if IFS= read -r -t 5 reply <&3; then echo "${reply%?}"; else echo "no reply"; fi
            done"#;
        let mut child = Command::new("bash")
            .args(["-c", script, &address.port().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("bash");
        let (input, output) = (child.stdin.take().expect("its input"), child.stdout.take().expect("its output"));
        Self { child, input, output: std::io::BufReader::new(output) }
    }

    fn ping(&mut self) -> String {
        self.input.write_all(b"PING\n").expect("it reads");
        let mut reply = String::new();
        std::io::BufRead::read_line(&mut self.output, &mut reply).expect("it prints");
        reply.trim().to_owned()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asserts that a reply is the one to PING.
fn is_closed(reply: &std::result::Result<String, ErrorKind>) {
    // A client that has sent nothing before the connection was closed sees its end instead of the reset.
    let closed = [ErrorKind::ConnectionReset, ErrorKind::UnexpectedEof, ErrorKind::BrokenPipe];
    assert!(reply.as_ref().is_err_and(|error| closed.contains(error)), "{reply:?}");
}

fn is_pong(reply: &Reply) {
    assert_eq!(*reply, Ok("+PONG".to_owned()));
}

/// A server, a proxy before it, and a connection that works.
fn proxied() -> Result<(RedisServer, Proxy, Client)> {
    let server = RedisServer::start()?;
    let proxy = Proxy::to(server.address())?;
    let mut client = Client::connect(proxy.address());
    is_pong(&client.ping());
    Ok((server, proxy, client))
}

#[test]
fn a_refusing_proxy_resets_new_connections_and_keeps_open_ones() -> Result<()> {
    let (_server, proxy, mut open) = proxied()?;
    proxy.cut(Cut::Refuse);
    is_closed(&Client::connect(proxy.address()).ping());
    is_pong(&open.ping());
    proxy.restore();
    is_pong(&Client::connect(proxy.address()).ping());
    Ok(())
}

#[test]
fn a_resetting_proxy_ends_open_connections_too() -> Result<()> {
    let (_server, proxy, mut open) = proxied()?;
    proxy.cut(Cut::Reset);
    is_closed(&open.receive(SOON));
    is_closed(&Client::connect(proxy.address()).ping());
    proxy.restore();
    is_pong(&Client::connect(proxy.address()).ping());
    Ok(())
}

#[test]
fn a_hanging_proxy_passes_nothing_on_until_it_is_restored() -> Result<()> {
    let (server, proxy, mut open) = proxied()?;
    let direct = |key| server.command(&["GET", key]);
    proxy.cut(Cut::Hang);
    let mut new = Client::connect(proxy.address());
    for (client, key) in [(&mut open, "open"), (&mut new, "new")] {
        client.send(&format!("SET {key} 1")).expect("the kernel accepts the data");
        assert_eq!(client.receive(NOTHING), Err(ErrorKind::WouldBlock), "{key}");
        assert_eq!(direct(key)?.text(), None, "the server has not received it");
    }
    proxy.restore();
    for (client, key) in [(&mut open, "open"), (&mut new, "new")] {
        assert_eq!(client.receive(SOON), Ok("+OK".to_owned()), "{key}");
        assert_eq!(direct(key)?.text().as_deref(), Some("1"));
    }
    Ok(())
}

#[test]
fn a_proxy_that_holds_replies_lets_the_server_receive_everything() -> Result<()> {
    let (server, proxy, mut client) = proxied()?;
    proxy.cut(Cut::HoldReplies);
    client.send("SET held 1").expect("the kernel accepts the data");
    let deadline = Instant::now() + SOON;
    while server.command(&["GET", "held"])?.text().is_none() {
        assert!(Instant::now() < deadline, "the server receives it");
    }
    assert_eq!(client.receive(NOTHING), Err(ErrorKind::WouldBlock));
    proxy.restore();
    assert_eq!(client.receive(SOON), Ok("+OK".to_owned()));
    Ok(())
}

#[test]
fn one_process_is_cut_off_and_another_goes_on() -> Result<()> {
    let (_server, proxy, mut ours) = proxied()?;
    let mut theirs = Other::connect(proxy.address());
    assert_eq!(theirs.ping(), "+PONG");

    proxy.cut_process(std::process::id(), Cut::Hang);
    ours.send("PING").expect("the kernel accepts the data");
    assert_eq!(ours.receive(NOTHING), Err(ErrorKind::WouldBlock));
    assert_eq!(theirs.ping(), "+PONG");
    assert_eq!(Other::connect(proxy.address()).ping(), "+PONG", "a new connection of another process");

    proxy.cut_process(std::process::id(), Cut::Reset);
    is_closed(&ours.receive(SOON));
    is_closed(&Client::connect(proxy.address()).ping());
    assert_eq!(theirs.ping(), "+PONG");

    proxy.restore();
    is_pong(&Client::connect(proxy.address()).ping());
    proxy.cut_process(theirs.child.id(), Cut::Reset);
    assert_eq!(theirs.ping(), "no reply");
    is_pong(&Client::connect(proxy.address()).ping());
    Ok(())
}
