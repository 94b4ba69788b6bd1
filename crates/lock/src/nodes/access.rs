//! Credentials and certificates for the nodes, and how they are replaced while connections are open.

use std::fmt;

use super::Tls;

/// The credentials for a node.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user; none for the password of the default user.
    pub username: Option<String>,
    /// Sent in clear without TLS; never logged.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

/// How many earlier values are tried. More than one, because the last change may have corrected a mistake, or a change that came in two
/// parts: the value in between was never right.
const EARLIER: usize = 3;

/// A value and those before it, the newest first. A server may not accept the current one yet, so the others are tried once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replaceable<T> {
    pub current: T,
    earlier: Vec<T>,
}

impl<T: PartialEq> Replaceable<T> {
    pub fn new(current: T) -> Self {
        Self { current, earlier: Vec::new() }
    }

    /// Sets the value. Returns whether it changed.
    pub fn replace(&mut self, value: T) -> bool {
        let changed = self.current != value;
        if changed {
            self.earlier.retain(|earlier| *earlier != value);
            self.earlier.insert(0, std::mem::replace(&mut self.current, value));
            self.earlier.truncate(EARLIER);
        }
        changed
    }

    /// The values before the current one are tried no more.
    pub fn forget_earlier(&mut self) {
        self.earlier.clear();
    }

    /// Tries this value last, if it is not known.
    fn try_also(&mut self, value: T) {
        if !self.iter().any(|known| *known == value) {
            self.earlier.push(value);
        }
    }

    /// The values to try, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.current).chain(&self.earlier)
    }
}

/// What a server accepted. `None` means no login, or no TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Accepted {
    pub credentials: Option<Credentials>,
    pub tls: Option<Tls>,
}

/// The settings of a new connection. `None` means no login, or no TLS.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub credentials: Replaceable<Option<Credentials>>,
    tls: Replaceable<Option<Tls>>,
    /// The current settings with earlier certificates of the client.
    earlier_clients: Vec<Tls>,
}

impl Access {
    pub fn new(credentials: Option<Credentials>, tls: Option<Tls>) -> Self {
        Self { credentials: Replaceable::new(credentials), tls: Replaceable::new(tls), earlier_clients: Vec::new() }
    }

    /// Sets the TLS settings of new connections. Returns whether they changed.
    pub fn set_tls(&mut self, tls: Option<Tls>) -> bool {
        let changed = self.tls.replace(tls);
        if changed {
            let with_client = |before: &Option<Tls>| self.tls.current.as_ref()?.with_client_of(before.as_ref()?);
            let mut clients: Vec<Tls> = self.tls.earlier.iter().filter_map(with_client).collect();
            clients.dedup();
            self.earlier_clients = clients;
        }
        changed
    }

    /// Tries also what the server accepted last: more mistakes may have followed than there are earlier values.
    pub fn try_also(&mut self, Accepted { credentials, tls }: Accepted) {
        self.credentials.try_also(credentials);
        let client = self.tls.current.as_ref().zip(tls).and_then(|(current, tls)| current.with_client_of(&tls));
        self.earlier_clients.extend(client.filter(|client| !self.earlier_clients.contains(client)));
    }

    /// Whether connections use TLS.
    pub const fn has_tls(&self) -> bool {
        self.tls.current.is_some()
    }

    /// The TLS settings to try, in order: a server may not accept the new certificate of the client yet. A connection with
    /// TLS is never replaced by one without: an attacker on the network could cause that, and read the password.
    pub fn tls(&self) -> impl Iterator<Item = Option<&Tls>> {
        std::iter::once(self.tls.current.as_ref()).chain(self.earlier_clients.iter().map(Some))
    }

    /// The credentials to try, in order. An earlier `None` is the last one: every server accepts a connection without a login, and
    /// refuses the first command if it wants one.
    pub fn credentials(&self) -> impl Iterator<Item = Option<&Credentials>> {
        let earlier = || self.credentials.iter().skip(1).map(Option::as_ref);
        let current = std::iter::once(self.credentials.current.as_ref());
        current.chain(earlier().flatten().map(Some)).chain(earlier().filter(Option::is_none))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_before_the_last_changes_are_tried() {
        let mut value = Replaceable::new("one");
        assert!(!value.replace("one"));
        assert!(value.iter().eq(&["one"]));
        assert!(value.replace("a mistake") && value.replace("two"));
        assert!(value.iter().eq(&["two", "a mistake", "one"]));
        assert!(value.replace("one"));
        assert!(value.iter().eq(&["one", "two", "a mistake"]), "each once");
        assert!(value.replace("three") && value.replace("four"));
        assert!(value.iter().eq(&["four", "three", "one", "two"]), "not more than {EARLIER}");
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
    fn what_a_server_accepted_last_is_tried_after_any_number_of_changes() {
        let user = |password: &str| Some(Credentials { username: None, password: password.into() });
        let mut access = Access::new(user("right"), None);
        let accepted = Accepted { credentials: user("right"), tls: None };
        let tried = |access: &Access| {
            let mut access = access.clone();
            access.try_also(accepted.clone());
            access.credentials().map(|tried| tried.map_or("", |tried| &tried.password).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(tried(&access), ["right"]);
        for wrong in ["1", "2", "3", "4"] {
            access.credentials.replace(user(wrong));
        }
        assert_eq!(tried(&access), ["4", "3", "2", "1", "right"]);
    }

    #[test]
    fn no_login_is_tried_after_all_credentials() {
        let user = |password: &str| Some(Credentials { username: None, password: password.into() });
        let mut access = Access::new(user("one"), None);
        access.credentials.replace(None);
        let (one, two) = (user("one"), user("two"));
        assert_eq!(access.credentials().collect::<Vec<_>>(), [None, one.as_ref()]);
        access.credentials.replace(user("two"));
        assert_eq!(access.credentials().collect::<Vec<_>>(), [two.as_ref(), one.as_ref(), None]);
    }

    #[test]
    fn no_password_in_debug_output() {
        let credentials = Credentials { username: Some("app".into()), password: "hunter2".into() };
        let shown = format!("{:?}", Access::new(Some(credentials), None));
        assert!(shown.contains("app") && !shown.contains("hunter2"), "{shown}");
    }
}
