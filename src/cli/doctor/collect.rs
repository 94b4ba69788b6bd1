//! Collects the facts from the API server and from the Redis nodes.

use std::time::Duration;

use futures::future::join_all;
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::{
    SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{ListParams, PostParams};
use kube::config::KubeConfigOptions;
use kube::{Api, Client, Config, ResourceExt};
use redislease_core::time::Millis;
use redislease_lock::nodes::{Failure, Probe};
use redislease_plan::api::quorum::{NodeState, NodeStatus, QuorumNode};
use redislease_plan::api::{ConditionStatus, ConditionType, RedisQuorum, ValidQuorum};
use rustls::pki_types::CertificateDer;

use super::certificates::Certificate;
use super::facts::{Facts, Identity, NodeFacts, Obstacle, QuorumFacts, Report, RightFacts, SHOWN_WITHIN};
use super::leases;
use super::rights::{self, Right};
use super::scope::Scope;
use crate::operator::QuorumSecrets;
use crate::operator::kube_api::{self, CallError};
use crate::operator::published;
use crate::operator::trimmed::{Malformed, Trimmed};

/// After this time, another replica leads if one works.
const ELECTED_WITHIN: Duration = Duration::from_secs(6);

/// So many access reviews are sent at once: each is a separate request, and the API server limits those of one client.
const REVIEWS_AT_ONCE: usize = 16;

/// The least timeout for a request to a node: a person may be far from the nodes.
const LEAST_TIMEOUT: Duration = Duration::from_secs(2);

/// Collects everything. A part that cannot be read does not keep the others from being read.
pub(super) async fn collect(scope: &Scope) -> Facts {
    let mut facts =
        Facts { namespace: format!("namespace {}", scope.namespace), now: Timestamp::now(), ..Facts::default() };
    let (client, address) = match kube_api::client().await {
        Ok(connected) => connected,
        Err(error) => return Facts { api_server: Some(Err(format!("{error}."))), ..facts },
    };
    if let Err(error) = kube_api::call(client.apiserver_version()).await {
        return Facts { api_server: Some(Err(format!("The API server at {address}: {error}."))), ..facts };
    }
    facts.api_server = Some(Ok(address));
    facts.identity = identity(scope).await;
    facts.kinds = published::kinds_soon(&client).await;
    let needed = rights::needed(scope);
    facts.rights = reviews(&client, scope, &needed).await;
    facts.quorums = Some(match quorums(&client, scope).await {
        Ok(found) => {
            // The doctor reads the secrets with the rights of its own user.
            let readable = found.iter().filter_map(|Trimmed(read)| read.as_ref().ok());
            let needed: Vec<Right> = readable.flat_map(|quorum| rights::of_secrets(scope, quorum)).collect();
            facts.rights.extend(reviews(&client, scope, &needed).await);
            let cluster = cluster_uid(&client).await;
            Ok(join_all(found.iter().map(|quorum| look_at(&client, quorum, cluster.as_deref(), facts.now))).await)
        }
        Err(error) => Err(error),
    });
    facts.leases = leases::with_problems(&client, scope).await;
    facts
}

/// Whose rights are checked.
async fn identity(scope: &Scope) -> Identity {
    if let Some(account) = &scope.service_account {
        return Identity::ServiceAccount(format!("{}/{account}", scope.namespace));
    }
    // Without a kubeconfig, the client has found the service account of a pod.
    match Config::from_kubeconfig(&KubeConfigOptions::default()).await {
        Ok(_) => Identity::Caller,
        Err(_) => Identity::Pod,
    }
}

/// The user and the groups of a service account, as its token has them: a role can be bound to each of them.
fn account_of(namespace: &str, account: &str) -> SubjectAccessReviewSpec {
    let groups = [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ];
    SubjectAccessReviewSpec {
        user: Some(format!("system:serviceaccount:{namespace}:{account}")),
        groups: Some(groups.into()),
        ..SubjectAccessReviewSpec::default()
    }
}

async fn reviews(client: &Client, scope: &Scope, needed: &[Right]) -> Vec<RightFacts> {
    let answers = needed.iter().map(|right| is_allowed(client, scope, right));
    stream::iter(answers).buffered(REVIEWS_AT_ONCE).collect().await
}

async fn is_allowed(client: &Client, scope: &Scope, right: &Right) -> RightFacts {
    let resource_attributes = Some(right.attributes.clone());
    let post = PostParams::default();
    let status = if let Some(account) = &scope.service_account {
        let spec = SubjectAccessReviewSpec { resource_attributes, ..account_of(&scope.namespace, account) };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let reviews = Api::<SubjectAccessReview>::all(client.clone());
        kube_api::call(reviews.create(&post, &review)).await.map(|review| review.status)
    } else {
        let spec = SelfSubjectAccessReviewSpec { resource_attributes, ..SelfSubjectAccessReviewSpec::default() };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
        kube_api::call(reviews.create(&post, &review)).await.map(|review| review.status)
    };
    let allowed = status.map(|status| status.is_some_and(|status| status.allowed)).map_err(|error| error.to_string());
    RightFacts { right: right.text(), needed_for: right.needed_for, allowed }
}

async fn quorums(client: &Client, scope: &Scope) -> Result<Vec<Trimmed<RedisQuorum>>, Obstacle> {
    let unread = |why: &str| Obstacle { message: format!("The RedisQuorums cannot be read: {why}."), unchecked: true };
    let api = Api::<Trimmed<RedisQuorum>>::namespaced(client.clone(), &scope.namespace);
    match &scope.quorum {
        Some(name) => match kube_api::call(api.get(name)).await {
            Ok(quorum) => Ok(vec![quorum]),
            Err(CallError::NotFound) => {
                let message =
                    format!("There is no RedisQuorum {name} in this namespace: check the name and `--namespace`.");
                Err(Obstacle { message, unchecked: false })
            }
            Err(error) => Err(unread(&error.to_string())),
        },
        None => match kube_api::call(api.list(&ListParams::default())).await {
            Ok(list) => Ok(list.items),
            // The finding about the kind says what to do.
            Err(error) if kube_api::lacks_kind(&error) => {
                Err(unread("the API server does not know the kind RedisQuorum"))
            }
            Err(error) => Err(unread(&error.to_string())),
        },
    }
}

/// The UID of this cluster; `None` if it cannot be read.
async fn cluster_uid(client: &Client) -> Option<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    kube_api::call(namespaces.get("kube-system")).await.ok()?.metadata.uid
}

/// `cluster` is the UID of this cluster.
async fn look_at(
    client: &Client,
    Trimmed(read): &Trimmed<RedisQuorum>,
    cluster: Option<&str>,
    now: Timestamp,
) -> QuorumFacts {
    let invalid = |name: &str, invalid: String| QuorumFacts { invalid: Some(invalid), ..QuorumFacts::new(name) };
    let quorum = match read {
        Ok(quorum) => quorum,
        Err(Malformed { metadata, error }) => {
            let message = format!("This version cannot read the RedisQuorum, and its operator ignores it: {error}");
            return invalid(metadata.name.as_deref().unwrap_or_default(), message);
        }
    };
    let spec = &quorum.spec;
    let valid = match ValidQuorum::try_from(quorum) {
        Ok(valid) => valid,
        Err(why) => return invalid(&quorum.name_any(), why.to_string()),
    };
    let mut facts = QuorumFacts {
        has_tls: spec.tls.is_some(),
        has_password: spec.auth.is_some(),
        report: report(quorum, now),
        ..QuorumFacts::new(&quorum.name_any())
    };
    facts.fingerprint = Some(valid.fingerprint());
    let (secrets, unchecked) = read_secrets(client, &valid).await;
    facts.secret = secrets.problem().map(|problem| Obstacle { message: problem.to_owned(), unchecked });
    let login = secrets.login().filter(|_| facts.secret.is_none());
    if let Some(tls) = login.as_ref().and_then(|login| login.tls.as_ref()) {
        facts.authorities = read_certificates(&tls.authorities());
        facts.client_chain = read_certificates(&tls.client_chain());
    }
    let timeout = Millis::from(valid.command_timeout.max(LEAST_TIMEOUT));
    let is_ready = facts.report.ready.as_ref().is_some_and(|ready| ready.status == ConditionStatus::True.as_str());
    let leader_of = cluster.filter(|_| is_ready).map(|cluster| (cluster.to_owned(), valid.name.clone()));
    let probe = |address: &str| {
        login.as_ref().map(|login| Probe {
            address: address.to_owned(),
            credentials: login.credentials.clone(),
            tls: login.tls.clone(),
            key_prefix: valid.key_prefix.clone(),
            leader_of: leader_of.clone(),
            timeout,
        })
    };
    let look = async |node: &QuorumNode| look_at_node(node, probe(&node.address)).await;
    facts.nodes = join_all(spec.nodes.iter().map(&look)).await;
    facts.is_led = is_led(&facts.nodes, valid.majority());
    if facts.is_led == Some(false) {
        tokio::time::sleep(ELECTED_WITHIN).await;
        let nodes = join_all(spec.nodes.iter().map(&look)).await;
        facts.is_led = is_led(&nodes, valid.majority());
    }
    facts
}

/// Looks at a node, unless a secret cannot be used.
async fn look_at_node(node: &QuorumNode, probe: Option<Probe>) -> NodeFacts {
    let server = match &probe {
        Some(probe) => Some(probe.run().await),
        None => None,
    };
    let tls = probe
        .as_ref()
        .filter(|_| matches!(server, Some(Ok(_))))
        .and_then(|probe| Some((probe.tls.as_ref()?, probe.timeout)));
    let chain = match tls {
        Some((tls, timeout)) => match tls.server_chain(&node.address, timeout).await {
            Ok(chain) => read_certificates(&chain),
            Err(Failure { text, .. }) => Err(text),
        },
        None => Ok(Vec::new()),
    };
    NodeFacts { name: node.name.clone(), address: node.address.clone(), zone: node.zone.clone(), server, chain }
}

/// Whether one of the nodes has the lock of the leading replica; `None` if fewer than a majority have answered.
fn is_led(nodes: &[NodeFacts], majority: usize) -> Option<bool> {
    let answers = nodes.iter().filter_map(|node| node.server.as_ref()?.as_ref().ok()?.has_leader);
    let answers: Vec<bool> = answers.collect();
    (answers.len() >= majority).then(|| answers.contains(&true))
}

/// What the operator has written about the quorum.
fn report(quorum: &RedisQuorum, now: Timestamp) -> Report {
    let created = quorum.metadata.creation_timestamp.as_ref().map(|created| created.0);
    let Some(status) = &quorum.status else { return Report { created, ..Report::default() } };
    let condition =
        |of: ConditionType| status.conditions.iter().find(|condition| condition.type_ == of.as_str()).cloned();
    let votes_soon = |node: &&NodeStatus| matches!(node.state, NodeState::Up | NodeState::Quarantined);
    let soon = status.nodes.iter().filter(votes_soon).count();
    let lasts = |until: Timestamp| until + SHOWN_WITHIN > now;
    let is_quarantined = status.nodes.iter().filter_map(NodeStatus::votes_again_at).any(lasts);
    Report {
        ready: condition(ConditionType::Ready),
        health: condition(ConditionType::QuorumHealthy),
        votes_soon: is_quarantined && ValidQuorum::try_from(quorum).is_ok_and(|valid| soon >= valid.majority()),
        created,
    }
}

fn read_certificates(chain: &[CertificateDer<'_>]) -> Result<Vec<Certificate>, String> {
    chain.iter().map(Certificate::read).collect()
}

/// Reads the secrets of a quorum, and whether one could not be read for a reason that may not concern the operator.
async fn read_secrets(client: &Client, valid: &ValidQuorum) -> (QuorumSecrets, bool) {
    let mut secrets = QuorumSecrets::default();
    let mut unchecked = false;
    secrets.follow(valid);
    let api = Api::<Secret>::namespaced(client.clone(), &valid.namespace);
    while let Some(name) = secrets.next_unread() {
        let read = kube_api::call(api.get(&name)).await.map(Box::new);
        unchecked |= matches!(&read, Err(error) if !matches!(error, CallError::NotFound));
        secrets.take(&valid.namespace, &name, &read);
    }
    (secrets, unchecked)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use axum::Router;
    use axum::http::StatusCode;
    use serde_json::{Value, json};

    #[tokio::test]
    async fn quorum_that_does_not_exist_is_certain() {
        let answers = |status: StatusCode| {
            let body =
                json!({"kind": "Status", "apiVersion": "v1", "code": status.as_u16(), "message": "no"}).to_string();
            Client::new(Router::new().fallback(async move || (status, body)), "default")
        };
        let scope = Scope { namespace: "system".into(), quorum: Some("nowhere".into()), ..Scope::default() };
        let missing = quorums(&answers(StatusCode::NOT_FOUND), &scope).await.unwrap_err();
        assert!(!missing.unchecked && missing.message.starts_with("There is no RedisQuorum nowhere"), "{missing:?}");
        let forbidden = quorums(&answers(StatusCode::FORBIDDEN), &scope).await.unwrap_err();
        assert!(
            forbidden.unchecked && forbidden.message.starts_with("The RedisQuorums cannot be read"),
            "{forbidden:?}"
        );
    }

    #[test]
    fn service_account_has_the_groups_of_its_token() {
        let review = account_of("system", "operator");
        assert_eq!(review.user.as_deref(), Some("system:serviceaccount:system:operator"));
        let groups = ["system:serviceaccounts", "system:serviceaccounts:system", "system:authenticated"];
        assert_eq!(review.groups.unwrap(), groups);
    }

    #[test]
    fn a_majority_of_votes_and_quarantines_comes_by_itself() {
        let soon = |states: [&str; 3], now: &str| {
            let names = ["a", "b", "c"];
            let nodes = names.map(|name| json!({"name": name, "address": format!("{name}:6379")}));
            let spec = serde_json::from_value(json!({"nodes": nodes})).unwrap();
            let mut quorum = RedisQuorum::new("default", spec);
            quorum.metadata.namespace = Some("system".to_owned());
            let message = "it has no data; it votes again from 2026-11-21T10:00:40Z";
            let shown = |(name, state)| json!({"name": name, "state": state, "message": message});
            let shown: Vec<Value> = names.into_iter().zip(states).map(shown).collect();
            quorum.status = Some(serde_json::from_value(json!({"nodes": shown})).unwrap());
            report(&quorum, now.parse().unwrap()).votes_soon
        };
        let before = "2026-11-21T10:00:00Z";
        assert!(soon(["Quarantined", "Quarantined", "Down"], before));
        assert!(soon(["Up", "Quarantined", "Misconfigured"], before));
        assert!(!soon(["Quarantined", "Down", "Down"], before) && !soon(["Up", "Misconfigured", "Down"], before));
        // The operator died in the quarantine.
        assert!(soon(["Up", "Quarantined", "Quarantined"], "2026-11-21T10:01:39Z"));
        assert!(!soon(["Up", "Quarantined", "Quarantined"], "2026-11-21T10:01:41Z"));
    }

    #[tokio::test]
    async fn the_access_reviews_are_not_sent_all_at_once() {
        let now_and_most = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        let counts = Arc::clone(&now_and_most);
        let answer = async move || {
            let now = counts.0.fetch_add(1, Ordering::SeqCst) + 1;
            counts.1.fetch_max(now, Ordering::SeqCst);
            // The others of the batch begin.
            for _ in 0..1000 {
                tokio::task::yield_now().await;
            }
            counts.0.fetch_sub(1, Ordering::SeqCst);
            json!({"metadata": {}, "spec": {}, "status": {"allowed": true}}).to_string()
        };
        let client = Client::new(Router::new().fallback(answer), "default");
        let scope = Scope { annotations: true, ..Scope::default() };
        let needed: Vec<Right> = rights::needed(&scope);
        assert!(needed.len() > 2 * REVIEWS_AT_ONCE);
        let found = reviews(&client, &scope, &needed).await;
        assert!(found.iter().all(|right| right.allowed == Ok(true)), "{found:?}");
        assert_eq!(found.len(), needed.len());
        assert_eq!(now_and_most.1.load(Ordering::SeqCst), REVIEWS_AT_ONCE);
    }

    #[tokio::test]
    async fn a_quorum_that_cannot_be_read_does_not_hide_the_others() {
        let nodes = json!([{"name": "a", "address": "127.0.0.1:1"}]);
        let items = json!([
            {"metadata": {"name": "bad", "namespace": "system"}, "spec": {"nodes": 7}},
            {"metadata": {"name": "good", "namespace": "system"}, "spec": {"nodes": nodes, "allowSingleNode": true}},
        ]);
        let list =
            json!({"apiVersion": "redislease.io/v1alpha1", "kind": "RedisQuorumList", "metadata": {}, "items": items});
        let answer = list.to_string();
        let client = Client::new(Router::new().fallback(async move || answer.clone()), "default");
        let found = quorums(&client, &Scope { namespace: "system".into(), ..Scope::default() }).await.unwrap();
        let [bad, good] = found.as_slice() else { panic!("{found:?}") };
        let bad = look_at(&client, bad, None, Timestamp::now()).await;
        assert_eq!(bad.name, "bad");
        let why = bad.invalid.unwrap();
        assert!(
            why.starts_with("This version cannot read the RedisQuorum, and its operator ignores it: nodes"),
            "{why}"
        );
        let good = look_at(&client, good, None, Timestamp::now()).await;
        assert_eq!((good.name.as_str(), good.invalid), ("good", None));
    }
}
