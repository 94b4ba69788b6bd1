//! Reads the highest token in the statuses of the leases on one quorum.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use redislease_core::op::Token;
use serde_json::Value;

use crate::api::RedisLease;
use crate::nodes::is_plausible;
use crate::operator::kube_api::{CallError, call};

/// How many leases one answer contains at most.
const PAGE: u32 = 500;

/// Lists the leases, as etcd has them now. A watch or a cached list may be behind.
///
/// # Errors
/// [`CallError`] of the first call that failed.
pub(super) async fn read(client: kube::Client, quorum: &str, namespaces: &[String]) -> Result<Token, CallError> {
    let resource = ApiResource::erase::<RedisLease>(&());
    let apis: Vec<Api<DynamicObject>> = match namespaces {
        [] => vec![Api::all_with(client, &resource)],
        chosen => chosen.iter().map(|name| Api::namespaced_with(client.clone(), name, &resource)).collect(),
    };
    let mut highest = Token(0);
    for leases in apis {
        let mut page = ListParams::default().limit(PAGE);
        loop {
            // Without a resource version, the API server answers with the newest state.
            let list = call(leases.list(&page)).await?;
            highest =
                list.items.iter().filter_map(|lease| token(&lease.data, quorum)).max().unwrap_or(highest).max(highest);
            match list.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => page = page.continue_token(&next),
                None => break,
            }
        }
    }
    Ok(highest)
}

/// The token of a lease whose spec or status names the quorum. A malformed lease can have a valid token. An implausible token
/// is left out, because it would hide the others.
fn token(lease: &Value, quorum: &str) -> Option<Token> {
    let names = |path| lease.pointer(path).and_then(Value::as_str) == Some(quorum);
    let token =
        || lease.pointer("/status/fencingToken").and_then(Value::as_u64).map(Token).filter(|&it| is_plausible(it));
    (names("/spec/quorumRef/name") || names("/status/quorum/name")).then(token).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_lease_counts_if_its_spec_or_its_status_names_the_quorum() {
        let lease = |spec: &str, status: &str, token: Value| {
            let status = json!({"quorum": {"name": status}, "fencingToken": token});
            json!({"spec": {"quorumRef": {"name": spec}, "keys": 7}, "status": status})
        };
        let cases = [
            (lease("default", "default", json!(7)), Some(Token(7))),
            (lease("default", "other", json!(7)), Some(Token(7))),
            (lease("other", "default", json!(7)), Some(Token(7))),
            (lease("other", "other", json!(7)), None),
            (lease("default", "default", json!("seven")), None),
            (lease("default", "default", json!(5_000_000_000_000_000_u64)), None),
            (json!({"spec": {"quorumRef": {"name": "default"}}}), None),
            (json!({}), None),
        ];
        for (lease, expected) in cases {
            assert_eq!(token(&lease, "default"), expected, "{lease}");
        }
    }
}
