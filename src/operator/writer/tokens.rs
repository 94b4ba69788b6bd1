//! Reads the highest token in the statuses of the leases on one quorum.

use kube::api::ListParams;
use kube::core::{ObjectList, Request};
use kube::{Client, Resource};
use redislease_core::op::Token;
use serde::Deserialize;
use serde_json::Value;

use crate::api::RedisLease;
use crate::nodes::is_plausible;
use crate::operator::kube_api::{CallError, call};

/// How many leases one answer contains at most.
const PAGE: u32 = 500;

/// What is read of a lease. Without its metadata, a page takes a tenth of the memory. Any content is accepted: a malformed
/// lease can have a valid token.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Lease {
    spec: Value,
    status: Value,
}

/// Lists the leases, as etcd has them now. A watch or a cached list may be behind.
///
/// # Errors
/// [`CallError`] of the first call that failed.
pub(super) async fn read(client: Client, quorum: &str, namespaces: &[String]) -> Result<Token, CallError> {
    let paths: Vec<String> = match namespaces {
        [] => vec![RedisLease::url_path(&(), None)],
        chosen => chosen.iter().map(|name| RedisLease::url_path(&(), Some(name))).collect(),
    };
    let mut highest = Token(0);
    for path in paths {
        let mut page = ListParams::default().limit(PAGE);
        loop {
            // Without a resource version, the API server answers with the newest state.
            let list = call(list(&client, &path, &page)).await?;
            let tokens = list.items.iter().filter_map(|lease| token(lease, quorum));
            highest = tokens.fold(highest, Token::max);
            match list.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => page = page.continue_token(&next),
                None => break,
            }
        }
    }
    Ok(highest)
}

async fn list(client: &Client, path: &str, page: &ListParams) -> kube::Result<ObjectList<Lease>> {
    let request = Request::new(path).list(page).map_err(kube::Error::BuildRequest)?;
    client.request(request).await
}

/// The token of a lease whose spec or status names the quorum. An implausible token is left out, because it would hide the
/// others.
fn token(Lease { spec, status }: &Lease, quorum: &str) -> Option<Token> {
    let names = |part: &Value, path| part.pointer(path).and_then(Value::as_str) == Some(quorum);
    let token = || status.get("fencingToken").and_then(Value::as_u64).map(Token).filter(|&it| is_plausible(it));
    (names(spec, "/quorumRef/name") || names(status, "/quorum/name")).then(token).flatten()
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
            (json!({"spec": 7, "status": {"quorum": {"name": "default"}, "fencingToken": 7}}), Some(Token(7))),
            (json!({}), None),
        ];
        for (lease, expected) in cases {
            let read: Lease = serde_json::from_value(lease.clone()).unwrap();
            assert_eq!(token(&read, "default"), expected, "{lease}");
        }
    }
}
