//! The order of the calls, against a server with fixed answers.

use std::sync::{Arc, Mutex};

use prometheus::Registry;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::*;
use crate::metrics::panics::Panics;

/// A server of HTTP with one answer for each method and path. Everything else does not exist.
struct Fake {
    client: Client,
    /// Method and last part of the path of each request.
    seen: Arc<Mutex<Vec<String>>>,
    metrics: OperatorMetrics,
    _serving: JoinSet<()>,
}

type Answers = Arc<Vec<(&'static str, u16, Value)>>;

impl Fake {
    async fn with(answers: Vec<(&'static str, u16, Value)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (seen, answers) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(answers));
        let mut serving = JoinSet::new();
        let log = seen.clone();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(answer(stream, answers.clone(), log.clone()));
            }
        });
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = kube::Config::new(url.parse().unwrap());
        config.default_retry = false;
        let client = Client::try_from(config).unwrap();
        let metrics = {
            let registry = Registry::new();
            OperatorMetrics::register(&registry, &[], &Panics::register(&registry).unwrap()).unwrap()
        };
        Self { client, seen, metrics, _serving: serving }
    }

    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    async fn write(&self, owner: &Owner, change: SliceChange, uid: Option<&str>) -> SliceAnswer {
        let slice = SliceWrite { change, ..put(None, uid) };
        write(self.client.clone(), owner, &slice, &self.metrics).await.1
    }
}

async fn answer(stream: TcpStream, answers: Answers, seen: Arc<Mutex<Vec<String>>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        if stream.read_line(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        stream.read_exact(&mut vec![0; length]).await.unwrap();
        let mut words = head.split([' ', '?']);
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let request = format!("{method} {}", path.rsplit('/').next().unwrap());
        let missing =
            (404, json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "x", "code": 404}));
        let found = answers.iter().find(|(of, ..)| *of == request);
        let (code, body) = found.map_or(missing, |(_, code, body)| (*code, body.clone()));
        seen.lock().unwrap().push(request);
        let body = body.to_string();
        let text = format!("HTTP/1.1 {code} X\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.get_mut().write_all(text.as_bytes()).await.unwrap();
    }
}

const SLICE: &str = "active-redislease-ipv4";

fn slice(version: &str) -> Value {
    let mut slice = serde_json::to_value(new_slice(&owner(), &put(None, None)).unwrap()).unwrap();
    slice["metadata"]["resourceVersion"] = json!(version);
    slice["metadata"]["uid"] = json!("s");
    slice
}

fn service() -> Value {
    let ports = ContainerPort { name: "http".into(), protocol: "TCP".into(), number: 8080 };
    let mut service =
        serde_json::to_value(new_service(&owner(), "active", &new_service_ports(&[ports])).unwrap()).unwrap();
    service["metadata"]["uid"] = json!("service");
    service["metadata"]["resourceVersion"] = json!("3");
    service
}

fn failure(code: u16) -> Value {
    json!({"kind": "Status", "status": "Failure", "message": "why", "reason": "x", "code": code})
}

const REMOVE: SliceChange = SliceChange::Remove { with_service: true };

#[tokio::test]
async fn a_removal_empties_the_slice_before_it_deletes_the_service() {
    let answers = || {
        vec![
            ("PATCH active-redislease-ipv4", 200, slice("8")),
            ("GET active", 200, service()),
            ("DELETE active", 200, service()),
            ("DELETE active-redislease-ipv4", 200, slice("9")),
        ]
    };
    let fake = Fake::with(answers()).await;
    let answer = fake.write(&owner(), REMOVE, Some("s")).await;
    assert_eq!(answer, SliceAnswer { outcome: RoleOutcome::Written, found: Some(SliceFound::Gone("s".into())) });
    let calls = ["GET billing", &format!("PATCH {SLICE}"), "GET active", "DELETE active", &format!("DELETE {SLICE}")];
    assert_eq!(fake.seen(), calls);
    // The slice has changed since the decision.
    let mut changed = answers();
    changed[0] = ("PATCH active-redislease-ipv4", 409, failure(409));
    changed.push(("GET active-redislease-ipv4", 200, slice("9")));
    let fake = Fake::with(changed).await;
    let answer = fake.write(&owner(), REMOVE, Some("s")).await;
    assert!(answer.outcome == RoleOutcome::Conflict && matches!(answer.found, Some(SliceFound::Here(_))), "{answer:?}");
    assert_eq!(fake.seen(), ["GET billing", &format!("PATCH {SLICE}"), &format!("GET {SLICE}")]);
    // The user has added a selector.
    let mut taken = answers();
    taken[1].2["spec"]["selector"] = json!({"app": "billing"});
    let fake = Fake::with(taken).await;
    fake.write(&owner(), REMOVE, Some("s")).await;
    assert!(!fake.seen().contains(&"DELETE active".to_owned()));
}

#[tokio::test]
async fn nothing_is_removed_that_the_lease_wants() {
    let fake = Fake::with(vec![("GET billing", 200, lease())]).await;
    let orphan = Owner { uid: None, ..owner() };
    for (owner, change) in
        [(owner(), REMOVE), (orphan.clone(), REMOVE), (orphan, SliceChange::Remove { with_service: false })]
    {
        assert_eq!(fake.write(&owner, change, Some("s")).await.outcome, RoleOutcome::Conflict);
        assert_eq!(fake.seen(), ["GET billing"]);
    }
}

#[tokio::test]
async fn a_slice_that_the_operator_does_not_manage_is_refused() {
    let mut foreign = slice("4");
    foreign["metadata"]["labels"] = json!({"kubernetes.io/service-name": "active"});
    let answers = vec![("POST endpointslices", 409, failure(409)), ("GET active-redislease-ipv4", 200, foreign)];
    let answer = Fake::with(answers).await.write(&owner(), SliceChange::empty(Some(Token(9))), None).await;
    let RoleOutcome::Refused(why) = &answer.outcome else { panic!("{answer:?}") };
    assert!(why.contains("does not manage") && answer.found.is_none(), "{answer:?}");
}

#[tokio::test]
async fn a_failed_creation_of_the_service_is_a_result_if_the_api_server_answers() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "billing-0", "namespace": "shop", "uid": "p"},
        "spec": {"containers": [{"name": "main", "ports": [{"containerPort": 8080}]}]},
    });
    let list = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSliceList", "metadata": {}, "items": []});
    let request = ServiceRequest { service: "active".into(), pod: "billing-0".into(), pod_uid: "p".into() };
    for (code, answered) in [(200, true), (503, false)] {
        let list = if answered { list.clone() } else { failure(code) };
        let answers = vec![
            ("GET billing-0", 200, pod.clone()),
            ("POST services", 500, failure(500)),
            ("GET endpointslices", code, list),
        ];
        let fake = Fake::with(answers).await;
        let found = prepare(fake.client.clone(), &owner(), &request, &fake.metrics).await;
        assert_eq!(fake.seen(), ["GET billing-0", "GET active", "POST services", "GET endpointslices"]);
        match found {
            Ok(found) => assert!(answered && found.prepared.refused.is_some_and(|why| why.contains("why"))),
            Err(error) => assert!(!answered && matches!(error, CallError::Unanswered(_)), "{error}"),
        }
    }
}

#[tokio::test]
async fn a_creation_that_is_answered_as_if_something_were_missing_or_changed_is_refused() {
    for code in [404, 409] {
        let fake = Fake::with(vec![("POST endpointslices", code, failure(code))]).await;
        let answer = fake.write(&owner(), SliceChange::empty(None), None).await;
        assert!(matches!(answer.outcome, RoleOutcome::Refused(_)), "{code}: {answer:?}");
    }
}

#[tokio::test]
async fn a_webhook_that_cannot_be_called_refuses() {
    let mut body = failure(500);
    body["message"] = json!("Internal error occurred: failed calling webhook \"a.example\": connection refused");
    let fake = Fake::with(vec![("PATCH active-redislease-ipv4", 500, body)]).await;
    let answer = fake.write(&owner(), SliceChange::empty(None), Some("s")).await;
    assert!(matches!(&answer.outcome, RoleOutcome::Refused(why) if why.contains("a.example")), "{answer:?}");
    let fake = Fake::with(vec![("PATCH active-redislease-ipv4", 500, failure(500))]).await;
    let answer = fake.write(&owner(), SliceChange::empty(None), Some("s")).await;
    assert!(matches!(answer.outcome, RoleOutcome::Unanswered(_)), "it may have been written: {answer:?}");
}

#[tokio::test]
async fn a_webhook_that_changes_the_content_counts_as_a_refusal() {
    let change = SliceChange::empty(Some(Token(9)));
    for (port, refused) in [(None, false), (Some(json!([{"name": "added", "port": 1}])), true)] {
        let mut stored = slice("8");
        stored["ports"] = port.unwrap_or_else(|| json!([]));
        let fake = Fake::with(vec![("PATCH active-redislease-ipv4", 200, stored)]).await;
        let answer = fake.write(&owner(), change.clone(), Some("s")).await;
        let is_refused = matches!(&answer.outcome, RoleOutcome::Refused(why) if why.contains("mutating"));
        assert!(is_refused == refused && matches!(answer.found, Some(SliceFound::Here(_))), "{answer:?}");
    }
}

#[tokio::test]
async fn an_empty_name_is_refused_without_a_request() {
    let fake = Fake::with(Vec::new()).await;
    let nobody = Owner { name: String::new(), uid: None, ..owner() };
    let answer = fake.write(&nobody, SliceChange::Remove { with_service: false }, Some("s")).await;
    assert!(matches!(answer.outcome, RoleOutcome::Refused(_)), "{answer:?}");
    assert_eq!(fake.seen(), [""; 0]);
}
