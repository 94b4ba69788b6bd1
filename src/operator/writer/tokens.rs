//! Reads the highest token in the statuses of the leases on one quorum.

use kube::api::ListParams;
use kube::core::{ObjectList, Request};
use kube::{Client, Resource};
use redislease_core::op::Token;
use redislease_plan::api::RedisLease;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::operator::kube_api::{CallError, call, each_page, is_forbidden};

/// What is read of a lease: a page of whole leases would take megabytes. Any content is accepted, because a malformed lease
/// can have a valid token.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Lease {
    #[serde(deserialize_with = "lenient")]
    spec: Spec,
    #[serde(deserialize_with = "lenient")]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    quorum_ref: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    quorum: Value,
    fencing_token: Value,
}

/// Reads the value, or takes the default if it has another type. Works on text only.
fn lenient<'de, D: Deserializer<'de>, T: Default + DeserializeOwned>(deserializer: D) -> Result<T, D::Error> {
    let text = <&RawValue>::deserialize(deserializer)?.get();
    Ok(serde_json::from_str(text).unwrap_or_default())
}

/// Lists the leases, as etcd has them now. A watch or a cached list may be behind.
///
/// A chosen namespace that was deleted took the operator's Role with it, so its list is refused for ever. It is left out, as by the
/// watch: this process has read its leases before, because it raises no counter before it has listed every namespace once.
///
/// # Errors
/// [`CallError`] of the first call that failed otherwise, or if every namespace is refused.
pub(super) async fn read(client: Client, quorum: &str, namespaces: &[String]) -> Result<Token, CallError> {
    let paths: Vec<String> = match namespaces {
        [] => vec![RedisLease::url_path(&(), None)],
        chosen => chosen.iter().map(|name| RedisLease::url_path(&(), Some(name))).collect(),
    };
    let (mut highest, mut refused) = (Token(0), Vec::new());
    for path in &paths {
        let list = |page| call(list(&client, path, page));
        let take = |items: Vec<Lease>| {
            highest = items.iter().filter_map(|lease| token(lease, quorum)).fold(highest, Token::max);
        };
        match each_page(ListParams::default(), list, take).await {
            Err(error) if is_forbidden(&error) && refused.len() + 1 < paths.len() => refused.push(path.as_str()),
            listed => listed?,
        }
    }
    if !refused.is_empty() {
        tracing::warn!(
            quorum,
            ?refused,
            "The operator may not list the leases of these namespaces any more, and uses the tokens that it read there before. Remove a namespace that does not exist from the list of watched namespaces."
        );
    }
    Ok(highest)
}

async fn list(client: &Client, path: &str, page: ListParams) -> kube::Result<ObjectList<Lease>> {
    let request = Request::new(path).list(&page).map_err(kube::Error::BuildRequest)?;
    client.request(request).await
}

/// The token of a lease whose spec or status names the quorum. An implausible token is left out, because it would hide the
/// others.
fn token(Lease { spec, status }: &Lease, quorum: &str) -> Option<Token> {
    let names = |part: &Value| part.get("name").and_then(Value::as_str) == Some(quorum);
    let token = || status.fencing_token.as_u64().map(Token).filter(|token| token.is_plausible());
    (names(&spec.quorum_ref) || names(&status.quorum)).then(token).flatten()
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::{StatusCode, Uri, header};
    use serde_json::json;

    use super::*;

    /// Reads the tokens of the namespaces `a` and `b`, whose lists have these HTTP status codes. Each lease has token 7.
    async fn read_with(namespaces: &[&str], codes: [u16; 2]) -> Result<Token, CallError> {
        let answer = move |uri: Uri| async move {
            let code = codes[usize::from(uri.path().contains("/b/"))];
            let lease = json!({"spec": {"quorumRef": {"name": "default"}}, "status": {"fencingToken": 7}});
            let body = match code {
                200 => json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [lease]}),
                _ => json!({"kind": "Status", "code": code, "status": "Failure", "reason": "Other", "message": "no"}),
            };
            let code = StatusCode::from_u16(code).unwrap();
            (code, [(header::CONTENT_TYPE, "application/json")], body.to_string())
        };
        let client = Client::new(Router::new().fallback(answer), "default");
        let namespaces: Vec<String> = namespaces.iter().map(|name| (*name).to_owned()).collect();
        read(client, "default", &namespaces).await
    }

    #[tokio::test]
    async fn a_namespace_that_was_deleted_with_its_role_is_left_out() {
        for codes in [[200, 403], [403, 200], [200, 200]] {
            assert_eq!(read_with(&["a", "b"], codes).await, Ok(Token(7)), "{codes:?}");
        }
        for codes in [[200, 500], [200, 410], [403, 403], [403, 500]] {
            assert!(read_with(&["a", "b"], codes).await.is_err(), "{codes:?}");
        }
        assert!(read_with(&["a"], [403, 200]).await.is_err(), "it is the only one");
        assert!(read_with(&[], [403, 200]).await.is_err(), "all namespaces at once");
    }

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
            (json!({"spec": {"quorumRef": [7]}, "status": "none"}), None),
            (json!({}), None),
        ];
        for (lease, expected) in cases {
            let read: Lease = serde_json::from_str(&lease.to_string()).unwrap();
            assert_eq!(token(&read, "default"), expected, "{lease}");
        }
    }
}
