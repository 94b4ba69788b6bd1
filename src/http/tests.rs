use super::*;
use crate::metrics::lease::LeaseMetrics;
use prometheus::{IntCounter, Registry};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

struct Running {
    address: SocketAddr,
    readiness: Readiness,
    registry: Registry,
    leases: LeaseMetrics,
    stop: oneshot::Sender<()>,
    task: JoinHandle<io::Result<()>>,
}

async fn run() -> Running {
    let server = Server::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let (address, readiness, registry) = (server.address(), Readiness::default(), Registry::new());
    let (stop, stopped) = oneshot::channel::<()>();
    let leases = LeaseMetrics::register(&registry).unwrap();
    let page = Page { registry: registry.clone(), leases: leases.clone() };
    let panics = Panics::register(&Registry::new()).unwrap();
    let task = tokio::spawn(server.serve(page, readiness.clone(), panics, async {
        let _ = stopped.await;
    }));
    Running { address, readiness, registry, leases, stop, task }
}

async fn request(address: SocketAddr, path: &'static str) -> String {
    tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_says_what_is_missing_until_nothing_is() {
    let server = run().await;
    let leases = server.readiness.needs("the list of leases");
    let quorum = server.readiness.needs("the first evaluation of quorum default");
    let answer = request(server.address, "/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(
        answer.ends_with("waiting for the first evaluation of quorum default\nwaiting for the list of leases\n"),
        "{answer}"
    );
    assert!(request(server.address, "/healthz").await.starts_with("HTTP/1.1 200 "));
    leases.done();
    assert!(
        request(server.address, "/readyz")
            .await
            .ends_with("\r\n\r\nwaiting for the first evaluation of quorum default\n")
    );
    quorum.done();
    let answer = request(server.address, "/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ready\n"), "{answer}");
}

#[tokio::test]
async fn a_panic_while_the_page_is_written_ends_one_request() {
    let (registry, readiness) = (Registry::new(), Readiness::default());
    let page = Page { registry: registry.clone(), leases: LeaseMetrics::register(&registry).unwrap() };
    let panics = Panics::register(&registry).unwrap();
    let shared = Shared { page, readiness, encoding: Arc::new(Semaphore::new(1)), panics };
    let failed = shared.in_turn(|| panic!("planned by the test")).await.map(|()| 0);
    assert_eq!(failed.unwrap_err().to_string(), "planned by the test");
    assert_eq!(shared.panics.operator.get(), 1);
    assert_eq!(shared.in_turn(|| 7).await.unwrap(), 7);
}

#[test]
fn what_is_given_up_stays_missing() {
    let readiness = Readiness::default();
    drop(readiness.needs("the list of pods"));
    assert_eq!(readiness.missing(), ["the list of pods"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_are_served_as_prometheus_text() {
    let server = run().await;
    let counter = IntCounter::new("apples_total", "Apples.").unwrap();
    server.registry.register(Box::new(counter.clone())).unwrap();
    counter.inc();
    let answer = request(server.address, "/metrics").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.to_lowercase().contains("content-type: text/plain; version=0.0.4"), "{answer}");
    assert!(answer.contains("# TYPE apples_total counter\napples_total 1\n"), "{answer}");
    assert!(request(server.address, "/nothing").await.starts_with("HTTP/1.1 404 "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_many_parts_is_served_to_its_end() {
    let server = run().await;
    let records: Vec<_> = (0..1000).map(|number| server.leases.lease("jobs", &format!("l{number:04}"), "q")).collect();
    let answer = request(server.address, "/metrics").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n0\r\n\r\n"), "{}", answer.len());
    for family in ["redislease_lease_active", "redislease_lease_unheld_seconds_total"] {
        for lease in ["l0000", "l0999"] {
            assert!(answer.contains(&format!("{family}{{lease=\"{lease}\"")), "{family} of {lease}");
        }
    }
    drop(records);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_stops_although_a_client_never_finishes_its_request() {
    let server = run().await;
    let mut open = TcpStream::connect(server.address).unwrap();
    write!(open, "GET /metrics HTTP/1.1\r\n").unwrap();
    assert!(request(server.address, "/healthz").await.starts_with("HTTP/1.1 200 "));
    server.stop.send(()).unwrap();
    tokio::time::timeout(GRACE * 5, server.task).await.expect("it stops").unwrap().unwrap();
    drop(open);
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let first = Server::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let error = Server::bind(first.address()).await.expect_err("the address is taken");
    let begins = format!("cannot listen on {}: ", first.address());
    assert!(error.to_string().starts_with(&begins), "{error}");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}
