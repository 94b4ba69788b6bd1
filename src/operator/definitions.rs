//! Compares the CustomResourceDefinitions of the API server with those of this version.
//!
//! The API server drops the fields that an older definition lacks, and reports no error: a lease with `granularity: Cluster` would
//! become one for pods, in every cluster. So this process decides nothing before the definitions have every field. Newer definitions
//! have more.

use std::time::{Duration, Instant};

use kube::Client;
use tokio_util::sync::CancellationToken;

use super::kube_api::{self, CallError};
use super::published::{self, APPLY, KindFacts};
use crate::http::{Part, Readiness};

/// The pause before the definitions are compared again while they do not fit.
const AGAIN: Duration = Duration::from_secs(2);
/// The same pause while they fit: somebody can apply older ones.
const EVERY: Duration = Duration::from_secs(30);
/// How long a comparison without a result delays the start. After a restart, terms wait for their renewal.
const UNKNOWN_FOR: Duration = Duration::from_secs(10);

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Comparison {
    /// The API server stores every field.
    Fit,
    /// What it does not store.
    Unfit(String),
    /// Why that is not known, and whether the API server refuses to show it.
    Unknown { why: String, refused: bool },
}

/// The definitions that the API server uses.
pub(super) struct Definitions {
    client: Client,
    readiness: Readiness,
    /// Keeps this process from being ready.
    pending: Option<Part>,
    /// The last certain result.
    lacks: Option<String>,
    /// When it was logged.
    logged_at: Option<Instant>,
}

impl Definitions {
    /// Begins with definitions that were not compared yet, so this process is not ready.
    pub fn new(client: Client, readiness: Readiness) -> Self {
        let pending = Some(readiness.needs("the CustomResourceDefinitions: not compared yet"));
        Self { client, readiness, pending, lacks: None, logged_at: None }
    }

    /// Waits until this process may begin. Returns false if it stops before that.
    pub async fn fit(&mut self, stop: &CancellationToken) -> bool {
        self.fit_within(UNKNOWN_FOR, stop).await
    }

    async fn fit_within(&mut self, unknown_for: Duration, stop: &CancellationToken) -> bool {
        let began = Instant::now();
        loop {
            // An API server that does not answer delays the start no longer than one that answers with an error.
            let timeout = unknown_for.saturating_sub(began.elapsed()).max(AGAIN);
            let compared = tokio::select! {
                () = stop.cancelled() => return false,
                compared = tokio::time::timeout(timeout, compare(&self.client)) => compared,
            };
            let late = |_| Comparison::Unknown { why: "the API server does not answer".to_owned(), refused: false };
            let compared = compared.unwrap_or_else(late);
            self.take(&compared, "This replica decides nothing before they are replaced");
            match compared {
                Comparison::Fit => return true,
                Comparison::Unknown { why, refused } if self.lacks.is_none() => {
                    if refused || began.elapsed() >= unknown_for {
                        tracing::warn!(
                            why,
                            "The CustomResourceDefinitions cannot be compared with this version, so this replica begins without it. Make sure that they are not older: `redislease doctor` compares them too."
                        );
                        self.wait_for(None);
                        return true;
                    }
                }
                Comparison::Unfit(_) | Comparison::Unknown { .. } => {}
            }
            tokio::select! {
                () = stop.cancelled() => return false,
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }

    /// Compares again and again. Definitions that became older keep this process from being ready, so that a rollout waits. It goes
    /// on deciding: its terms would end otherwise.
    pub async fn follow(mut self, stop: CancellationToken) {
        loop {
            let pause = if self.lacks.is_some() { AGAIN } else { EVERY };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                compared = compare(&self.client) => self.take(&compared, "This replica goes on with the remaining fields"),
            }
        }
    }

    /// Keeps this process from being ready, or does not any more.
    fn wait_for(&mut self, what: Option<String>) {
        if let Some(part) = self.pending.take() {
            part.done();
        }
        self.pending = what.map(|what| self.readiness.needs(what));
    }

    /// Takes a result, and says what has changed. Without a result, the last one stays.
    fn take(&mut self, compared: &Comparison, effect: &str) {
        match compared {
            Comparison::Fit => {
                if self.lacks.take().is_some() {
                    tracing::info!("The CustomResourceDefinitions have every field of this version.");
                }
                self.wait_for(None);
            }
            Comparison::Unfit(lacks) => {
                let known = self.lacks.replace(lacks.clone());
                if known.as_ref() != Some(lacks) {
                    self.wait_for(Some(format!("the CustomResourceDefinitions: {lacks}: {APPLY}")));
                    self.logged_at = None;
                }
                if self.logged_at.is_none_or(|at| at.elapsed() >= EVERY) {
                    self.logged_at = Some(Instant::now());
                    tracing::error!(
                        "The CustomResourceDefinitions are not those of this version: {lacks}. {effect}: {APPLY}."
                    );
                }
            }
            Comparison::Unknown { why, .. } => {
                tracing::debug!(why, "The CustomResourceDefinitions cannot be compared with this version.");
            }
        }
    }
}

async fn compare(client: &Client) -> Comparison {
    let mut kinds = published::kinds(client).await;
    if kinds.iter().any(|kind| kind.missing_fields == Ok(None)) {
        // The API server publishes the fields of new kinds some time after it has the kinds.
        let served = kube_api::call(client.list_api_group_resources("redislease.io/v1alpha1")).await;
        for kind in kinds.iter_mut().filter(|kind| kind.missing_fields == Ok(None)) {
            match &served {
                Ok(list) if list.resources.iter().any(|resource| resource.kind == kind.kind) => {
                    let why = format!("the API server has the kind {}, but does not publish its fields", kind.kind);
                    kind.missing_fields = Err(CallError::Unanswered(why));
                }
                Err(error) if !kube_api::lacks_kind(error) => kind.missing_fields = Err(error.clone()),
                _ => {}
            }
        }
    }
    judge(&kinds)
}

fn judge(kinds: &[KindFacts]) -> Comparison {
    let lacks = kinds.iter().filter_map(|KindFacts { kind, missing_fields }| match missing_fields {
        Ok(None) => Some(format!("there is none of {kind}")),
        Ok(Some(fields)) => (!fields.is_empty()).then(|| format!("that of {kind} lacks {}", fields.join(", "))),
        Err(_) => None,
    });
    let lacks: Vec<String> = lacks.collect();
    if !lacks.is_empty() {
        return Comparison::Unfit(lacks.join("; "));
    }
    match kinds.iter().find_map(|kind| kind.missing_fields.as_ref().err()) {
        Some(error) => Comparison::Unknown { why: error.to_string(), refused: matches!(error, CallError::Refused(_)) },
        None => Comparison::Fit,
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::{StatusCode, Uri};
    use serde_json::json;

    use super::*;

    fn facts(missing_fields: &Result<Option<Vec<String>>, CallError>) -> [KindFacts; 2] {
        ["RedisLease", "RedisQuorum"].map(|kind| KindFacts { kind, missing_fields: missing_fields.clone() })
    }

    #[test]
    fn a_missing_field_or_kind_is_certain_and_an_error_is_not() {
        assert_eq!(judge(&facts(&Ok(Some(Vec::new())))), Comparison::Fit);
        let mut old = facts(&Err(CallError::Unanswered("no".into())));
        old[0].missing_fields = Ok(Some(vec!["spec.granularity".into(), "spec.activation".into()]));
        let lacks = "that of RedisLease lacks spec.granularity, spec.activation".to_owned();
        assert_eq!(judge(&old), Comparison::Unfit(lacks));
        let none = "there is none of RedisLease; there is none of RedisQuorum".to_owned();
        assert_eq!(judge(&facts(&Ok(None))), Comparison::Unfit(none));
        for (error, is_refusal) in [
            (CallError::Unanswered("no".into()), false),
            (CallError::Unreadable("no".into()), false),
            (CallError::Refused("no".into()), true),
        ] {
            let Comparison::Unknown { refused, .. } = judge(&facts(&Err(error))) else { panic!("it is unknown") };
            assert_eq!(refused, is_refusal);
        }
    }

    /// An API server without the document of the fields, which answers to a request for the group with this code, and with these kinds.
    fn without_document(group: StatusCode, kinds: &'static [&str]) -> Client {
        let answer = async move |uri: Uri| {
            let code = if uri.path().starts_with("/apis") { group } else { StatusCode::NOT_FOUND };
            let resource =
                |kind| json!({"kind": kind, "name": kind, "singularName": "", "namespaced": true, "verbs": []});
            let resources: Vec<_> = kinds.iter().map(resource).collect();
            let groups =
                json!({"kind": "APIResourceList", "groupVersion": "redislease.io/v1alpha1", "resources": resources});
            // To a request for a group that it does not know, the API server answers without a text.
            (code, if code == StatusCode::OK { groups.to_string() } else { String::new() })
        };
        Client::new(Router::new().fallback(answer), "default")
    }

    #[tokio::test]
    async fn without_the_document_the_group_shows_whether_the_kinds_exist() {
        assert!(matches!(compare(&without_document(StatusCode::NOT_FOUND, &[])).await, Comparison::Unfit(_)));
        let one = compare(&without_document(StatusCode::OK, &["RedisQuorum"])).await;
        assert_eq!(one, Comparison::Unfit("there is none of RedisLease".to_owned()));
        for (code, kinds) in
            [(StatusCode::OK, &["RedisLease", "RedisQuorum"][..]), (StatusCode::INTERNAL_SERVER_ERROR, &[])]
        {
            let unknown = compare(&without_document(code, kinds)).await;
            assert!(matches!(unknown, Comparison::Unknown { refused: false, .. }), "{unknown:?}");
        }
    }

    #[tokio::test]
    async fn an_api_server_that_does_not_answer_delays_the_start_no_longer_than_an_error() {
        let silent = Client::new(Router::new().fallback(std::future::pending::<StatusCode>), "default");
        let mut definitions = Definitions::new(silent, Readiness::default());
        let began = Instant::now();
        assert!(definitions.fit_within(Duration::ZERO, &CancellationToken::new()).await);
        // Each call to the API server may take 5 s.
        assert!(began.elapsed() < 2 * AGAIN, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn the_process_is_ready_while_no_field_is_known_to_be_missing() {
        let readiness = Readiness::default();
        let mut definitions = Definitions::new(without_document(StatusCode::OK, &[]), readiness.clone());
        let (fit, unfit) = (Comparison::Fit, |what: &str| Comparison::Unfit(what.to_owned()));
        let unknown = Comparison::Unknown { why: "no answer".into(), refused: false };
        let mut after = |compared: &Comparison| {
            definitions.take(compared, "");
            readiness.missing()
        };
        assert_eq!(after(&unknown), ["the CustomResourceDefinitions: not compared yet"]);
        for lacks in ["that of RedisLease lacks spec.a", "that of RedisLease lacks spec.b"] {
            let said = after(&unfit(lacks));
            assert!(matches!(&said[..], [one] if one.contains(lacks) && one.contains("kubectl apply")), "{said:?}");
            assert_eq!(after(&unknown), said, "what is known stays");
        }
        assert!(after(&fit).is_empty());
        assert!(after(&unknown).is_empty());
        assert_eq!(after(&unfit("a")).len(), 1, "older ones were applied");
    }
}
