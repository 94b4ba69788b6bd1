//! The credentials of a quorum, from the secret that its spec names.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use super::kube_api::{CallError, call};
use crate::api::ValidQuorum;
use crate::api::conditions::QuorumReady;
use crate::nodes::Credentials;

/// What became of a look at the secret.
#[derive(Clone, Debug)]
pub(super) enum SecretRead {
    /// The credentials; `None` when the spec names no secret.
    Found(Option<Credentials>),
    /// The API server says that there are none, and why.
    Unusable(String),
    /// The API server did not say.
    Unread(String),
}

impl SecretRead {
    /// Looks at the secret of a quorum.
    pub async fn of(valid: &ValidQuorum, client: Client, namespace: &str) -> Self {
        let Some(name) = &valid.secret else { return Self::Found(None) };
        let whole = format!("spec.auth.secretRef names secret {namespace}/{name}");
        let secrets: Api<Secret> = Api::namespaced(client, namespace);
        let secret = match call(secrets.get(name)).await {
            Ok(secret) => secret,
            Err(CallError::NotFound) => {
                return Self::Unusable(format!("{whole}, which does not exist: create it with the key `password`"));
            }
            Err(error @ CallError::Unanswered(_)) => {
                return Self::Unread(format!("{whole}, which is not read yet: {error}"));
            }
            Err(error) => return Self::Unusable(format!("{whole}, which could not be read: {error}")),
        };
        let text = |key: &str| {
            let bytes = secret.data.as_ref().and_then(|data| data.get(key));
            bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).trim_end_matches(['\r', '\n']).to_owned())
        };
        match text("password").filter(|password| !password.is_empty()) {
            Some(password) => {
                let username = text("username").filter(|name| !name.is_empty());
                Self::Found(Some(Credentials { username, password }))
            }
            None => Self::Unusable(format!("{whole}, whose key `password` is missing or empty")),
        }
    }

    /// What keeps a quorum from being used, after this look. What was not read is as it was before, if anything was.
    pub fn obstacle(&self, is_open: bool, before: Option<(QuorumReady, String)>) -> Option<(QuorumReady, String)> {
        match self {
            Self::Found(_) => None,
            Self::Unread(_) if is_open => before.filter(|(reason, _)| *reason == QuorumReady::InvalidReference),
            Self::Unusable(message) | Self::Unread(message) => Some((QuorumReady::InvalidReference, message.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_was_not_read_is_as_it_was_before() {
        let missing = Some((QuorumReady::InvalidReference, "missing".to_owned()));
        let invalid = Some((QuorumReady::InvalidSpec, "invalid".to_owned()));
        let unread = SecretRead::Unread("later".into());
        assert_eq!(unread.obstacle(true, None), None);
        assert_eq!(unread.obstacle(true, missing.clone()), missing);
        assert_eq!(unread.obstacle(true, invalid.clone()), None, "the spec has been corrected since");
        let first = Some((QuorumReady::InvalidReference, "later".to_owned()));
        assert_eq!(unread.obstacle(false, None), first, "nothing is known yet");
        assert_eq!(SecretRead::Unusable("missing".into()).obstacle(true, None), missing);
        assert_eq!(SecretRead::Found(None).obstacle(true, missing), None);
    }
}
