//! Why a server does not vote, in the words of this library.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use redislease_lab::{Authority, Identity, RedisOptions, RedisServer, RedisTls};
use redislease_locker::{InvalidConfig, Locker, LockerBuilder, Tls};

use crate::support::{LONGEST, PATIENCE, ms, servers, three, urls};

fn one(url: String) -> LockerBuilder {
    Locker::builder([url]).single_node().longest_lease(LONGEST)
}

/// Words of an operator, which the user of the library does not have.
const FOREIGN_WORDS: [&str; 9] =
    ["RedisQuorum", "spec", "secret", "keyPrefix", "operator", "ca.crt", "tls.crt", "tls.key", "quorum"];

fn plain(text: &str) {
    for word in FOREIGN_WORDS {
        assert!(!text.contains(word), "`{word}` in: {text}");
    }
    assert!(!text.contains('\n'), "{text}");
}

/// The error of a locker that never gets ready contains this in the end.
async fn says(builder: LockerBuilder, part: &str) {
    let locker = builder.build().unwrap();
    let began = Instant::now();
    loop {
        let text = locker.ready(ms(50)).await.unwrap_err().to_string();
        if text.contains(part) {
            return plain(&text);
        }
        assert!(began.elapsed() < PATIENCE, "no `{part}` in: {text}");
    }
}

fn refused(builder: LockerBuilder, part: &str) {
    let Err(InvalidConfig { .. }) = &builder.clone().build() else { panic!("{builder:?} is accepted, no {part}") };
    let text = builder.build().unwrap_err().to_string();
    assert!(text.contains(part), "{text}");
    plain(&text);
}

/// A server that answers each connection with these bytes. It ends with the process of the test.
fn answering(bytes: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(bytes);
        }
    });
    address
}

fn with_tls(identity: &Identity, client_ca: Option<&Authority>) -> (RedisServer, String) {
    let tls = RedisTls { identity: identity.clone(), client_ca: client_ca.map(Authority::certificate) };
    let server = RedisServer::start_with(&RedisOptions { tls: Some(tls), ..RedisOptions::default() }).unwrap();
    let url = format!("rediss://{}", server.tls_address().unwrap());
    (server, url)
}

#[tokio::test]
async fn certificates() {
    let (ours, theirs) = (Authority::new("ours").unwrap(), Authority::new("theirs").unwrap());
    let names = ["localhost", "127.0.0.1"];
    let (good, expired) = (ours.sign(&names).unwrap(), ours.sign_expired(&names).unwrap());
    let trusted = || Tls::new(ours.certificate());
    let as_client = |identity: &Identity| trusted().client(identity.certificate.clone(), identity.key.clone());

    let (server, url) = with_tls(&good, None);
    one(url.clone()).tls(trusted()).build().unwrap().ready(PATIENCE).await.unwrap();
    let of_tls = |tls: Tls| one(url.clone()).tls(tls);
    says(of_tls(Tls::new(theirs.certificate())), "passed to tls(): add the authority that signed it").await;
    says(of_tls(trusted().server_name("redis.example")), "set the server name in tls() to a name that it contains")
        .await;
    says(one(format!("redis://{}", server.tls_address().unwrap())), "write `rediss://` and call tls()").await;
    let plain_port = one(format!("rediss://{}", server.address())).tls(trusted());
    says(plain_port, "write `redis://` and do not call tls()").await;

    refused(of_tls(Tls::new("")), "tls(): the certificate authority holds no certificate in PEM");
    refused(of_tls(trusted().client("", "")), "tls(): the client's certificate holds no certificate in PEM");
    refused(of_tls(trusted().client(good.certificate.clone(), "")), "tls(): the client's key holds no private key");
    let mixed = trusted().client(good.certificate.clone(), expired.key.clone());
    refused(of_tls(mixed), "tls(): the client's certificate and key cannot be used together");
    refused(of_tls(trusted().server_name("")), "tls(): the server name `` is not a DNS name");

    let (_mutual, url) = with_tls(&good, Some(&ours));
    let of_tls = |tls: Tls| one(url.clone()).tls(tls);
    says(of_tls(trusted()), "pass one and its key to tls()").await;
    says(of_tls(as_client(&theirs.sign(&["x"]).unwrap())), "or pass another one to tls()").await;
    says(of_tls(as_client(&ours.sign_expired(&["x"]).unwrap())), "certificate has expired: pass another one").await;
    of_tls(as_client(&good)).build().unwrap().ready(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn servers_that_cannot_be_used() {
    let password = RedisOptions { password: Some("p@ss%".into()), ..RedisOptions::default() };
    let server = RedisServer::start_with(&password).unwrap();
    let address = server.address();
    says(one(format!("redis://{address}")), "in credentials() or in the URLs").await;
    says(one(format!("redis://:p%40ss@{address}")), "in credentials() or in the URLs").await;
    one(format!("redis://:p%40ss%25@{address}")).build().unwrap().ready(PATIENCE).await.unwrap();

    let address = answering(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    says(one(format!("redis://{address}")), "check that a Redis server listens on this address").await;

    let limited = RedisServer::start().unwrap();
    limited.create_user("password", "redislease", &["-pexpire"]).unwrap();
    let advice = "grant the user the commands and keys that docs/redis-checklist.md lists";
    says(one(format!("redis://redislease:password@{}", limited.address())), advice).await;

    let open = RedisServer::start().unwrap();
    let advice = "has no password: set `requirepass` on it, or remove the password from the URLs";
    says(one(format!("redis://:secret@{}", open.address())), advice).await;
    let address = answering(b"-DENIED Redis is running in protected mode because no password is set\r\n");
    says(one(format!("redis://:secret@{address}")), "Redis is running in protected mode").await;

    let text = one("redis://127.0.0.1:1".into()).build().unwrap().ready(ms(1)).await.unwrap_err().to_string();
    assert!(text.starts_with("the Redis node does not vote after 1ms: node 127.0.0.1:1: "), "{text}");

    let server = RedisServer::start().unwrap();
    let port = server.address().port();
    let same =
        [format!("redis://127.0.0.1:{port}"), format!("redis://localhost:{port}"), format!("redis://[::1]:{port}")];
    says(Locker::builder(same), &format!(":{port}: use a separate server for each node")).await;
    refused(one("redis://h:0".into()), "node h:0: the address `h:0` in its URL is not `host:port`: write a host name");
    refused(one("redis://::1:1".into()), "an IPv6 address in brackets");
}

/// The two programs have no common majority at a moment when one server is away. Without the wait for the marker of another one, both
/// would get the lock.
#[tokio::test]
async fn a_program_with_other_nodes_gets_no_lock_also_on_servers_that_the_first_one_has_not_reached() {
    let servers = servers(4);
    let urls = urls(&servers);
    let on = |nodes: [usize; 3]| {
        let urls = nodes.map(|node| urls[node].clone());
        Locker::builder(urls).longest_lease(LONGEST).command_timeout(Duration::from_secs(1))
    };
    servers[1].process().kill().unwrap();
    let first = on([0, 1, 2]).build().unwrap();
    first.ready(PATIENCE).await.unwrap();
    let guard = first.lock("k").acquire().await.unwrap();
    servers[1].restart().unwrap();
    says(on([0, 1, 3]), "delete the marker on every server (the key `redislease:marker`)").await;
    let second = on([0, 1, 3]).build().unwrap();
    assert!(second.lock("k").wait(LONGEST * 2).acquire().await.is_err());
    guard.verify().await.unwrap();
}

#[tokio::test]
async fn the_first_program_stays_ready() {
    let (_servers, locker) = three().await;
    locker.ready(Duration::ZERO).await.unwrap();
    locker.ready(Duration::MAX).await.unwrap();
}
