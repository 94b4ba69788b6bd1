//! The credentials and certificates of a quorum, from the secrets that its spec names.

use k8s_openapi::api::core::v1::Secret;
use redislease_lock::nodes::{Credentials, Tls, TlsFiles};
use redislease_plan::api::ValidQuorum;

use crate::operator::kube_api::CallError;

/// The result of reading a secret.
pub type Read = Result<Box<Secret>, CallError>;

/// What the connections of a quorum log in with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Login {
    pub credentials: Option<Credentials>,
    pub tls: Option<Tls>,
}

/// A secret was not read, or cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable;

/// The state of one secret.
#[derive(Clone, Debug, Default, PartialEq)]
enum SecretState<T> {
    /// It was not read yet.
    #[default]
    Unread,
    /// Read, and usable.
    Found(T),
    /// Why its content cannot be used.
    Unusable(String),
}

impl<T> SecretState<T> {
    fn problem(&self) -> Option<&str> {
        match self {
            Self::Unusable(problem) => Some(problem),
            Self::Unread | Self::Found(_) => None,
        }
    }
}

/// A secret that the spec names.
#[derive(Clone, Debug)]
struct Named<T> {
    secret: String,
    requested: bool,
    state: SecretState<T>,
}

impl<T: PartialEq> Named<T> {
    fn new(secret: &str) -> Self {
        Self { secret: secret.to_owned(), requested: false, state: SecretState::Unread }
    }

    /// The name, if no read was requested yet. The caller requests one.
    fn request(&mut self) -> Option<String> {
        (!std::mem::replace(&mut self.requested, true)).then(|| self.secret.clone())
    }

    /// Takes the state of the secret `name`. Returns whether it has changed. Without an answer, what is known of its content stays.
    fn take(&mut self, name: &str, read: &Read, state: impl FnOnce() -> SecretState<T>) -> bool {
        let keeps = matches!((read, &self.state), (Err(CallError::Unanswered(_)), SecretState::Found(_)));
        if self.secret != name || keeps {
            return false;
        }
        let state = state();
        let changed = self.state != state;
        self.state = state;
        changed
    }
}

/// The secrets that the spec of one quorum names. Both can be the same.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    auth: Option<Named<Credentials>>,
    tls: Option<Named<Tls>>,
    server_name: Option<String>,
}

impl Secrets {
    /// Follows the secrets of this spec.
    pub fn follow(&mut self, valid: &ValidQuorum) {
        if self.auth.as_ref().map(|auth| &auth.secret) != valid.secret.as_ref() {
            self.auth = valid.secret.as_deref().map(Named::new);
        }
        let server_name = valid.tls.as_ref().and_then(|tls| tls.server_name.clone());
        let secret = valid.tls.as_ref().map(|tls| &tls.secret);
        if self.tls.as_ref().map(|tls| &tls.secret) != secret || self.server_name != server_name {
            self.tls = secret.map(|secret| Named::new(secret));
            self.server_name = server_name;
        }
    }

    /// The next secret to read for the first time.
    pub fn next_unread(&mut self) -> Option<String> {
        let auth = self.auth.as_mut().and_then(Named::request);
        auth.or_else(|| self.tls.as_mut().and_then(Named::request))
    }

    /// The names of all secrets.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let auth = self.auth.as_ref().map(|auth| auth.secret.as_str());
        let tls = self.tls.as_ref().map(|tls| tls.secret.as_str());
        auth.into_iter().chain(tls.filter(|tls| Some(*tls) != auth))
    }

    /// Takes the result of reading the secret `namespace/name`. Returns whether something has changed.
    pub fn take(&mut self, namespace: &str, name: &str, read: &Read) -> bool {
        let of_auth = |auth: &mut Named<Credentials>| auth.take(name, read, || credentials(read, namespace, name));
        let auth = self.auth.as_mut().is_some_and(of_auth);
        let server_name = self.server_name.as_deref();
        let of_tls = |tls: &mut Named<Tls>| tls.take(name, read, || certificates(read, namespace, name, server_name));
        self.tls.as_mut().is_some_and(of_tls) | auth
    }

    /// Whether all secrets have been read.
    pub fn are_read(&self) -> bool {
        self.auth.as_ref().is_none_or(|auth| auth.state != SecretState::Unread)
            && self.tls.as_ref().is_none_or(|tls| tls.state != SecretState::Unread)
    }

    /// Why a secret cannot be used.
    pub fn problem(&self) -> Option<&str> {
        let auth = self.auth.as_ref().and_then(|auth| auth.state.problem());
        auth.or_else(|| self.tls.as_ref().and_then(|tls| tls.state.problem()))
    }

    /// The credentials; none if the spec names no secret.
    ///
    /// # Errors
    /// The secret was not read, or cannot be used.
    pub fn credentials(&self) -> Result<Option<Credentials>, Unavailable> {
        content(self.auth.as_ref())
    }

    /// The certificates; none if the spec names no secret.
    ///
    /// # Errors
    /// The secret was not read, or cannot be used.
    pub fn tls(&self) -> Result<Option<Tls>, Unavailable> {
        content(self.tls.as_ref())
    }

    /// What to open the quorum with; `None` while a secret was not read. Without credentials, the servers accept or reject
    /// the login. Without certificates, no connection is opened.
    pub fn login(&self) -> Option<Login> {
        let unavailable = || self.tls.as_ref()?.state.problem().map(Tls::unavailable);
        let tls = self.tls().unwrap_or_else(|Unavailable| unavailable());
        self.are_read().then(|| Login { credentials: self.credentials().unwrap_or_default(), tls })
    }
}

fn content<T: Clone>(named: Option<&Named<T>>) -> Result<Option<T>, Unavailable> {
    match named.map(|named| &named.state) {
        None => Ok(None),
        Some(SecretState::Found(content)) => Ok(Some(content.clone())),
        Some(SecretState::Unread | SecretState::Unusable(_)) => Err(Unavailable),
    }
}

fn data<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    let bytes = secret.data.as_ref()?.get(key)?;
    Some(bytes.0.as_slice()).filter(|bytes| !bytes.is_empty())
}

/// The secret, or why there is none. `whole` names it, and `keys` is what to create it with.
fn found<'a>(read: &'a Read, whole: &str, keys: &str) -> Result<&'a Secret, String> {
    match read {
        Ok(secret) => Ok(secret),
        Err(CallError::NotFound) => Err(format!("{whole}, which does not exist: create it with {keys}")),
        Err(error) => Err(format!("{whole}, which could not be read: {error}")),
    }
}

fn credentials(read: &Read, namespace: &str, name: &str) -> SecretState<Credentials> {
    let whole = format!("spec.auth.secretRef names secret {namespace}/{name}");
    let secret = match found(read, &whole, "the key `password`") {
        Ok(secret) => secret,
        Err(problem) => return SecretState::Unusable(problem),
    };
    let text = |key: &str| {
        let text = String::from_utf8_lossy(data(secret, key)?).trim_end_matches(['\r', '\n']).to_owned();
        Some(text).filter(|text| !text.is_empty())
    };
    match text("password") {
        Some(password) => SecretState::Found(Credentials { username: text("username"), password }),
        None => SecretState::Unusable(format!("{whole}, whose key `password` is missing or empty")),
    }
}

fn certificates(read: &Read, namespace: &str, name: &str, server_name: Option<&str>) -> SecretState<Tls> {
    let whole = format!("spec.tls.secretRef names secret {namespace}/{name}");
    let read = || -> Result<Tls, String> {
        let secret = found(read, &whole, "the key `ca.crt` and, for mutual TLS, `tls.crt` and `tls.key`")?;
        let key = |key: &str| data(secret, key).map(<[u8]>::to_vec);
        let missing = |key: &str, why: &str| format!("{whole}, whose key `{key}` is missing or empty: {why}");
        let ca = key("ca.crt").ok_or_else(|| {
            missing("ca.crt", "add the certificate of the authority that signed the servers' certificates")
        })?;
        let client = match (key("tls.crt"), key("tls.key")) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => return Err(missing("tls.key", "mutual TLS needs it together with `tls.crt`")),
            (None, Some(_)) => return Err(missing("tls.crt", "mutual TLS needs it together with `tls.key`")),
        };
        let files = TlsFiles { ca, client, server_name: server_name.map(str::to_owned) };
        Tls::new(files).map_err(|problem| format!("{whole}, {problem}"))
    };
    match read() {
        Ok(tls) => SecretState::Found(tls),
        Err(problem) => SecretState::Unusable(problem),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;
    use redislease_lab::Authority;

    #[allow(clippy::unnecessary_wraps, reason = "it is the result of a read")]
    fn secret(data: &[(&str, &str)]) -> Read {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
        Ok(Box::new(Secret { data: Some(data.collect()), ..Secret::default() }))
    }

    #[test]
    fn a_secret_gives_credentials_or_an_error() {
        let found = credentials(&secret(&[("password", "secret\n"), ("username", "redislease")]), "system", "redis");
        let expected = Credentials { username: Some("redislease".into()), password: "secret".into() };
        assert_eq!(found, SecretState::Found(expected));
        for (read, says) in [
            (secret(&[("password", "")]), "names secret system/redis, whose key `password` is missing or empty"),
            (Err(CallError::NotFound), "which does not exist: create it with the key `password`"),
            (Err(CallError::Refused("no".into())), "could not be read: the API"),
        ] {
            let SecretState::Unusable(message) = credentials(&read, "system", "redis") else { panic!("{says}") };
            assert!(message.contains(says), "{message}");
        }
    }

    #[test]
    fn a_secret_gives_certificates_or_an_error() {
        let authority = Authority::new("test").unwrap();
        let client = authority.sign(&["client"]).unwrap();
        let (ca, certificate, key) = (authority.certificate(), client.certificate, client.key);
        let read = |data: &[(&str, &str)]| certificates(&secret(data), "system", "redis-tls", None);
        assert!(matches!(read(&[("ca.crt", &ca)]), SecretState::Found(_)));
        assert!(matches!(
            read(&[("ca.crt", &ca), ("tls.crt", &certificate), ("tls.key", &key)]),
            SecretState::Found(_)
        ));
        for (state, says) in [
            (read(&[("tls.crt", &certificate), ("tls.key", &key)]), "whose key `ca.crt` is missing or empty: add the"),
            (read(&[("ca.crt", &ca), ("tls.crt", &certificate)]), "whose key `tls.key` is missing or empty: mutual"),
            (read(&[("ca.crt", &ca), ("tls.key", &key)]), "whose key `tls.crt` is missing or empty: mutual"),
            (read(&[("ca.crt", "none")]), "whose key `ca.crt` holds no certificate in PEM"),
            (
                certificates(&Err(CallError::NotFound), "system", "redis-tls", None),
                "spec.tls.secretRef names secret system/redis-tls, which does not exist: create it with the key `ca.crt`",
            ),
        ] {
            let SecretState::Unusable(message) = state else { panic!("{says}") };
            assert!(message.contains(says), "{message}");
            assert!(!message.contains("BEGIN"), "{message}");
        }
    }

    #[test]
    fn unusable_certificates_never_lead_to_a_connection_without_tls() {
        let mut secrets = Secrets { tls: Some(Named::new("redis-tls")), ..Secrets::default() };
        assert_eq!(secrets.next_unread().as_deref(), Some("redis-tls"));
        assert_eq!((secrets.next_unread(), secrets.login()), (None, None));
        assert!(secrets.take("system", "redis-tls", &Err(CallError::NotFound)));
        assert!(!secrets.take("system", "redis-tls", &Err(CallError::NotFound)), "nothing has changed");
        assert!(secrets.problem().is_some_and(|problem| problem.contains("does not exist")));
        let Some(Login { tls: Some(tls), .. }) = secrets.login() else { panic!("no TLS") };
        assert!(format!("{tls:?}").contains("does not exist"), "{tls:?}");
        assert_eq!(secrets.tls(), Err(Unavailable), "the certificates of open connections stay");
    }
}
