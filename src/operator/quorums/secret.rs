//! The credentials of a quorum, from the secret that its spec names.

use k8s_openapi::api::core::v1::Secret;

use crate::nodes::Credentials;
use crate::operator::kube_api::CallError;

/// The state of the secret.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum SecretState {
    /// It was not read yet.
    #[default]
    Unread,
    /// The credentials; `None` when the spec names no secret.
    Found(Option<Credentials>),
    /// Why there are no credentials.
    Unusable(String),
}

impl SecretState {
    /// Takes the result of reading the secret `namespace/name`.
    pub fn of(read: Result<Box<Secret>, CallError>, namespace: &str, name: &str) -> Self {
        let whole = format!("spec.auth.secretRef names secret {namespace}/{name}");
        let secret = match read {
            Ok(secret) => secret,
            Err(CallError::NotFound) => {
                return Self::Unusable(format!("{whole}, which does not exist: create it with the key `password`"));
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

    /// Whether the secret was read.
    pub fn is_read(&self) -> bool {
        *self != Self::Unread
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_secret_gives_credentials_or_an_error() {
        let read = |data: serde_json::Value| {
            let secret = serde_json::from_value(json!({"metadata": {}, "data": data})).unwrap();
            SecretState::of(Ok(Box::new(secret)), "system", "redis")
        };
        // `secret` with a line feed, and `redislease`.
        let found = read(json!({"password": "c2VjcmV0Cg==", "username": "cmVkaXNsZWFzZQ=="}));
        let credentials = Credentials { username: Some("redislease".into()), password: "secret".into() };
        assert_eq!(found, SecretState::Found(Some(credentials)));
        for (state, says) in [
            (read(json!({"password": ""})), "names secret system/redis, whose key `password` is missing or empty"),
            (SecretState::of(Err(CallError::NotFound), "system", "redis"), "which does not exist: create it"),
            (SecretState::of(Err(CallError::Refused("no".into())), "system", "redis"), "could not be read: the API"),
        ] {
            let SecretState::Unusable(message) = state else { panic!("{says}: {state:?}") };
            assert!(message.contains(says), "{message}");
        }
    }
}
