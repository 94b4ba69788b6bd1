//! Credentials and certificates for the nodes, and how they are replaced while connections are open.

use std::fmt;

use super::Tls;

/// The credentials for a node.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user; none for the password of the default user.
    pub username: Option<String>,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

/// A value and the one before it. A server may not accept the current one yet, so the previous one is tried once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replaceable<T> {
    pub current: T,
    pub previous: Option<T>,
}

impl<T: PartialEq> Replaceable<T> {
    pub fn new(current: T) -> Self {
        Self { current, previous: None }
    }

    /// Sets the value. Returns whether it changed.
    pub fn replace(&mut self, value: T) -> bool {
        let changed = self.current != value;
        if changed {
            self.previous = Some(std::mem::replace(&mut self.current, value));
        }
        changed
    }
}

/// The settings of a new connection. `None` means no login, or no TLS.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub credentials: Replaceable<Option<Credentials>>,
    tls: Option<Tls>,
    /// The current settings with the previous certificate of the client.
    previous_client: Option<Tls>,
}

impl Access {
    pub fn new(credentials: Option<Credentials>, tls: Option<Tls>) -> Self {
        Self { credentials: Replaceable::new(credentials), tls, previous_client: None }
    }

    /// Sets the TLS settings of new connections. Returns whether they changed.
    pub fn set_tls(&mut self, tls: Option<Tls>) -> bool {
        if self.tls == tls {
            return false;
        }
        let before = std::mem::replace(&mut self.tls, tls);
        self.previous_client =
            self.tls.as_ref().zip(before.as_ref()).and_then(|(now, before)| now.with_client_of(before));
        true
    }

    /// Whether connections use TLS.
    pub const fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The TLS settings to try, in order: a server may not accept the new certificate of the client yet. A connection with
    /// TLS is never replaced by one without: an attacker on the network could cause that, and read the password.
    pub fn tls(&self) -> impl Iterator<Item = Option<&Tls>> {
        std::iter::once(self.tls.as_ref()).chain(self.previous_client.as_ref().map(Some))
    }

    /// The credentials to try, in order.
    pub fn credentials(&self) -> impl Iterator<Item = Option<&Credentials>> {
        std::iter::once(self.credentials.current.as_ref()).chain(self.credentials.previous.iter().map(Option::as_ref))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_before_the_last_change_is_kept() {
        let mut value = Replaceable::new("one");
        assert!(!value.replace("one"));
        assert_eq!(value.previous, None);
        assert!(value.replace("two"));
        assert_eq!((value.current, value.previous), ("two", Some("one")));
    }

    #[test]
    fn tls_is_never_replaced_by_a_connection_without_tls() {
        let mut access = Access::new(None, None);
        assert!(access.set_tls(Some(Tls::unavailable("first"))));
        assert_eq!(access.tls().collect::<Vec<_>>(), [Some(&Tls::unavailable("first"))]);
        assert!(!access.set_tls(Some(Tls::unavailable("first"))));
        assert!(access.set_tls(Some(Tls::unavailable("second"))));
        assert_eq!(access.tls().collect::<Vec<_>>(), [Some(&Tls::unavailable("second"))]);
        assert!(access.set_tls(None));
        assert_eq!(access.tls().collect::<Vec<_>>(), [None], "the user removed TLS");
    }

    #[test]
    fn no_password_in_debug_output() {
        let credentials = Credentials { username: Some("app".into()), password: "hunter2".into() };
        let shown = format!("{:?}", Access::new(Some(credentials), None));
        assert!(shown.contains("app") && !shown.contains("hunter2"), "{shown}");
    }
}
