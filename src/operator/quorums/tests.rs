//! The controller with a real writer, against an API server that answers what the test says.

use redislease_plan::engine::Watched;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::{StatusCode, Uri};
use prometheus::Registry;
use redislease_lock::keeper::Keeper;
use redislease_plan::api::RedisQuorum;
use redislease_plan::election::Cluster;
use redislease_plan::index::ListCount;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::http::Readiness;
use crate::metrics::nodes::NodeMetrics;
use crate::metrics::operator::OperatorMetrics;
use crate::metrics::panics::Panics;
use crate::metrics::renewals::RenewalMetrics;
use crate::operator::authority::Authorities;
use crate::operator::engine::Message;
use crate::operator::leadership::Replica;
use crate::operator::writer::Writer;

/// The API server does not answer a read of this secret.
const SILENT: &str = "silent";
/// Shorter than the timeout of a call to the API server, which is 5 s.
const WITHIN: Duration = Duration::from_millis(4500);

/// The last part of the path of each request, in order of arrival.
type Seen = Arc<Mutex<Vec<String>>>;

/// An API server that answers every read of a secret but [`SILENT`] with a password, and everything else with an error.
fn api_server(seen: Seen) -> kube::Client {
    let answer = async move |uri: Uri| {
        let name = uri.path().rsplit('/').next().unwrap_or_default().to_owned();
        seen.lock().unwrap().push(name.clone());
        if name == SILENT {
            std::future::pending::<()>().await;
        }
        let (code, body) = if uri.path().contains("/secrets/") {
            (StatusCode::OK, json!({"metadata": {"name": name}, "data": {"password": "c2VjcmV0"}}))
        } else {
            let status =
                json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "NotFound", "code": 404});
            (StatusCode::NOT_FOUND, status)
        };
        (code, body.to_string())
    };
    kube::Client::new(Router::new().fallback(answer), "default")
}

pub(super) fn quorum(name: &str) -> Watched<RedisQuorum> {
    let nodes: Vec<Value> =
        (1..=3).map(|port| json!({"name": format!("n{port}"), "address": format!("127.0.0.1:{port}")})).collect();
    let object = json!({
        "apiVersion": "redislease.io/v1alpha1",
        "kind": "RedisQuorum",
        "metadata": {"namespace": "system", "name": name, "uid": name, "resourceVersion": "1", "generation": 1},
        "spec": {"nodes": nodes, "maxLeaseDuration": "10s", "auth": {"secretRef": {"name": name}}},
    });
    Watched::Seen(Box::new(serde_json::from_value(object).unwrap()))
}

/// The dependencies of a controller, the inputs of the engine and the counters of panics.
pub(super) fn parts() -> (Parts, mpsc::UnboundedReceiver<Message>, Panics) {
    let registry = Registry::new();
    let panics = Panics::register(&registry).unwrap();
    let metrics = OperatorMetrics::register(&registry, &[CONTROLLER], &panics).unwrap();
    let writer = Writer::new("operator-0".into(), ListCount::default(), metrics.clone(), Authorities::default(), || {});
    let keeper = Arc::new(Keeper::start(panics.keeper_observer()).unwrap());
    let cluster = Cluster { name: "c".into(), uid: "u".into() };
    let (instance, process) = ("operator-0".into(), "p".into());
    let replica = Replica { cluster, instance, process, keeper, writer: writer.clone() };
    let readiness = Readiness::default();
    let (engine, inputs) = mpsc::unbounded_channel();
    let parts = Parts {
        namespace: "system".into(),
        lease_namespaces: [].into(),
        writer,
        engine,
        node_metrics: NodeMetrics::register(&registry, &panics).unwrap(),
        renewal_metrics: RenewalMetrics::register(&registry).unwrap(),
        metrics,
        replica,
        authorities: Authorities::default(),
        answered: Arc::new(Notify::new()),
        tried: Some(readiness.needs("tried")),
        listed: Some(readiness.needs("listed")),
    };
    (parts, inputs, panics)
}

#[tokio::test]
async fn a_secret_that_is_not_answered_delays_no_other_quorum() {
    let mut tasks = JoinSet::new();
    let seen = Seen::default();
    let client = api_server(seen.clone());
    let (parts, mut inputs, _) = parts();
    let (writer, keeper) = (parts.writer.clone(), parts.replica.keeper.clone());
    let stop = CancellationToken::new();
    tasks.spawn(writer.run(Box::new(move || Ok(client.clone())), stop.clone()));
    let (events, watch) = mpsc::channel(8);
    tasks.spawn(run(parts, watch, stop.clone()));

    for event in [Watched::ListBegins, quorum(SILENT)] {
        events.send(event).await.unwrap();
    }
    let asked = || async {
        while !seen.lock().unwrap().iter().any(|name| name == SILENT) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), asked()).await.expect("the first secret is read");
    let began = Instant::now();
    for event in [quorum("answered"), Watched::ListEnds] {
        events.send(event).await.unwrap();
    }
    loop {
        let left = WITHIN.saturating_sub(began.elapsed());
        let input = tokio::time::timeout(left, inputs.recv()).await;
        let input = input.expect("the other quorum is connected while the first secret is read");
        let Some(Message::Quorum(QuorumUpdate { name, connection: Some(_), .. })) = input else { continue };
        assert_eq!(name, "answered", "the first quorum has no password yet");
        break;
    }
    stop.cancel();
    keeper.shutdown().await;
    tasks.abort_all();
}
