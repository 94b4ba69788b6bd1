//! The configuration of a [`Locker`].

use std::fmt;
use std::time::Duration;

use redislease_core::marker::{Membership, fingerprint};
use redislease_core::quorum::{MAX_NODES, Quorum};
use redislease_core::time::Millis;
use redislease_lock::nodes::{Config, Credentials, NodeConfig};

use crate::node::PROGRAM;
use crate::observer::Observed;
use crate::url::{Server, credentials, named};
use crate::{InvalidConfig, Locker, Observer, Tls};

/// The generation of every configuration.
const GENERATION: u64 = 1;

/// The longest namespace and the longest prefix, in bytes.
const MAX_NAME: usize = 128;

/// Collects the configuration of a [`Locker`]. See the example of [`Locker::builder`].
#[derive(Clone)]
pub struct LockerBuilder {
    /// Name and URL.
    nodes: Vec<(String, String)>,
    namespace: String,
    prefix: String,
    longest_lease: Duration,
    command_timeout: Duration,
    credentials: Option<Credentials>,
    tls: Option<Tls>,
    single_node: bool,
    beside_operator: bool,
    observer: Observed,
}

impl fmt::Debug for LockerBuilder {
    /// Shows no URL: it can contain a password. The name of a URL that cannot be read may be a part of one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |(name, url): &(String, String)| Server::parse(name, url).map_or("?".to_owned(), |_| name.clone());
        let nodes: Vec<_> = self.nodes.iter().map(shown).collect();
        f.debug_struct("LockerBuilder")
            .field("nodes", &nodes)
            .field("namespace", &self.namespace)
            .field("prefix", &self.prefix)
            .field("longest_lease", &self.longest_lease)
            .field("command_timeout", &self.command_timeout)
            .finish_non_exhaustive()
    }
}

impl Locker {
    /// Begins the configuration with the URLs of the servers, `redis://host:port` or `rediss://host:port`: 3 or 5 independent Redis
    /// masters. Each can have a name, as in `a=redis://host:port`, see [`LockerBuilder::node`]. A URL can have a user and a password,
    /// as in `redis://user:password@host:port`, where `%40` is `@` and `%25` is `%`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use redislease_locker::{InvalidConfig, Locker, LockerBuilder};
    /// let builder: LockerBuilder = Locker::builder(["redis://a:6379", "redis://b:6379", "redis://c:6379"])
    ///     .namespace("shop")
    ///     .prefix("locks")
    ///     .longest_lease(Duration::from_mins(1))
    ///     .command_timeout(Duration::from_secs(1))
    ///     .credentials("user", "password");
    /// let locker = builder.build()?;
    /// println!("{} takes locks on {} servers", locker.owner(), locker.nodes().len());
    /// # Ok::<(), InvalidConfig>(())
    /// ```
    pub fn builder<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> LockerBuilder {
        LockerBuilder::new(urls)
    }

    /// Uses the credentials and the certificates of `builder` for new connections: a password or a certificate was replaced. Open
    /// connections and locks stay. A server that does not accept the new ones yet is reached with those before, or without a login if
    /// there were none. To use no password any more, remove it on the servers first. The rest of `builder` has no effect.
    ///
    /// ```
    /// # use redislease_locker::Locker;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = |password: &str| Locker::builder(["redis://a:6379", "redis://b:6379", "redis://c:6379"]).credentials("", password);
    /// let locker = builder("old").build()?;
    /// locker.set_access(&builder("new"))?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// A value of `builder` is invalid, or only one of the two uses TLS.
    pub fn set_access(&self, builder: &LockerBuilder) -> Result<(), InvalidConfig> {
        self.replace_access(builder.config()?)
    }
}

impl LockerBuilder {
    fn new<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> Self {
        Self {
            nodes: urls.into_iter().map(|url| named(url.into())).collect(),
            namespace: "default".to_owned(),
            prefix: "redislease".to_owned(),
            longest_lease: Duration::from_secs(30),
            command_timeout: Duration::from_millis(500),
            credentials: None,
            tls: None,
            single_node: false,
            beside_operator: false,
            observer: Observed::default(),
        }
    }

    /// Adds a server with a name of its own. With the list of [`Locker::builder`], the name of a server is `host:port` as written.
    /// All programs must use the same names: they are part of the configuration that the servers store.
    ///
    /// With a name of its own, a server can get another address later: stop the old server for good, start an empty one, then give
    /// all programs the new address, one server at a time. Two programs that reach two servers under one name have no common
    /// majority, and nothing detects that.
    ///
    /// ```
    /// # use redislease_locker::Locker;
    /// let locker = Locker::builder::<&str>([])
    ///     .node("a", "redis://10.0.0.1:6379")
    ///     .node("b", "redis://10.0.0.2:6379")
    ///     .node("c", "redis://10.0.0.3:6379")
    ///     .build()?;
    /// assert_eq!(locker.nodes()[1].name, "b");
    /// # Ok::<(), redislease_locker::InvalidConfig>(())
    /// ```
    pub fn node(mut self, name: impl Into<String>, url: impl Into<String>) -> Self {
        self.nodes.push((name.into(), url.into()));
        self
    }

    /// A first part of all keys, for example the name of the program, 1 to 128 bytes. Programs exclude each other only in the same
    /// namespace. It contains no slash and no control character. Default: `default`. See the example of [`Locker::builder`].
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// The prefix of all keys on the servers, also of the token counter, 1 to 128 bytes. Each prefix has its own locks, tokens and
    /// `longest_lease`, if none of them begins with another one and a colon. Default: `redislease`. See the example of [`Locker::builder`].
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The longest `ttl` of any lock, 200 ms to 1 h. All programs must use the same value: a server that restarts without its data
    /// does not vote for this long, and a program with another value is refused. Default: 30 s. See the example of
    /// [`Locker::builder`].
    pub fn longest_lease(mut self, longest: Duration) -> Self {
        self.longest_lease = longest;
        self
    }

    /// The longest time for one command on one server, 10 ms to 10 s. Default: 500 ms. See the example of [`Locker::builder`].
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.command_timeout = timeout;
        self
    }

    /// The user and the password for all servers. An empty user is the default user of the server. It replaces the ones in the URLs.
    /// See the example of [`Locker::builder`].
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.credentials = Some(credentials(&user.into(), &password.into()));
        self
    }

    /// Uses TLS for the connections to all servers. See the example of [`Tls`].
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Allows a single server. Its loss is then the loss of every lock, and a pause of one program's virtual machine by more than 50 ms
    /// looks like a step of its clock: all programs lose their locks, for one longest lease. See the example of [`build`](Self::build).
    pub const fn single_node(mut self) -> Self {
        self.single_node = true;
        self
    }

    /// Uses the servers of an operator of RedisLease. Node names, prefix and longest lease must be those of the operator. This
    /// program then lets no server vote that has lost its data, because only the operator knows the tokens in its resources.
    ///
    /// ```
    /// # use redislease_locker::Locker;
    /// let nodes = ["redis-0=redis://a:6379", "redis-1=redis://b:6379", "redis-2=redis://c:6379"];
    /// let locker = Locker::builder(nodes).beside_operator().build()?;
    /// # Ok::<(), redislease_locker::InvalidConfig>(())
    /// ```
    pub const fn beside_operator(mut self) -> Self {
        self.beside_operator = true;
        self
    }

    /// Reports what happens to the locks, for metrics and logs. Default: nobody. See the example of [`Observer`].
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observer = Observed::by(observer);
        self
    }

    /// Starts the thread of the [`Locker`]. It connects in the background; [`Locker::ready`] waits for that.
    ///
    /// ```
    /// # use redislease_locker::Locker;
    /// let error = Locker::builder(["redis://a:6379"]).build().unwrap_err();
    /// assert!(error.to_string().starts_with("one server: use 3 or 5 independent Redis masters."));
    /// assert!(Locker::builder(["redis://a:6379"]).single_node().build().is_ok());
    /// ```
    ///
    /// # Errors
    /// A value is invalid, or the operating system cannot start a thread. The text names the value and what to do.
    pub fn build(self) -> Result<Locker, InvalidConfig> {
        let config = self.config()?;
        Locker::start(self.namespace, &config, self.observer)
    }

    fn config(&self) -> Result<Config, InvalidConfig> {
        let longest_lease =
            within("longest_lease", self.longest_lease, Duration::from_millis(200), Duration::from_hours(1))?;
        let least = Duration::from_millis(10);
        let command_timeout = within("command_timeout", self.command_timeout, least, Duration::from_secs(10))?;
        // A name may be a part of a URL: nothing shows it before the URL is known to be one.
        let numbered = self.nodes.iter().enumerate();
        let servers = numbered.map(|(index, (name, url))| {
            Server::parse(name, url).map_err(|problem| InvalidConfig(format!("server {}: {problem}", index + 1)))
        });
        let servers = servers.collect::<Result<Vec<_>, _>>()?;
        self.check_names()?;
        check_addresses(&servers)?;
        let quorum = self.quorum()?;
        let uses_tls = servers.iter().any(|server| server.tls);
        if uses_tls && self.tls.is_none() {
            return invalid("a URL begins with `rediss://`: call tls() with the certificate authority of the servers");
        }
        if self.tls.is_some() && servers.iter().any(|server| !server.tls) {
            return invalid("tls() applies to all servers: write every URL with `rediss://`");
        }
        let tls = self.tls.as_ref().map(Tls::checked).transpose()?;
        let mut in_urls = servers.iter().map(|server| &server.credentials);
        let first = in_urls.next().cloned().flatten();
        if self.credentials.is_none() && in_urls.any(|other| *other != first) {
            return invalid(
                "the URLs have different users or passwords: use one user for all servers, with credentials()",
            );
        }
        let node = |(name, address)| NodeConfig { name, address };
        Ok(Config {
            quorum: self.namespace.clone(),
            nodes: servers.into_iter().map(|server| node((server.name, server.address))).collect(),
            key_prefix: self.prefix.clone(),
            membership: self.membership(quorum, longest_lease),
            longest_lease,
            command_timeout,
            credentials: self.credentials.clone().or(first),
            tls,
            has_statuses: self.beside_operator,
            connect_last: Vec::new(),
        })
    }

    fn check_names(&self) -> Result<(), InvalidConfig> {
        for (what, name) in [("namespace", &self.namespace), ("prefix", &self.prefix)] {
            if name.is_empty() || name.len() > MAX_NAME {
                return invalid(&format!("{what} has {} bytes: use 1 to {MAX_NAME}", name.len()));
            }
        }
        if self.namespace.contains(|letter: char| letter == '/' || letter.is_control()) {
            return invalid(&format!("namespace {:?}: use no slash and no control character", self.namespace));
        }
        for (index, (name, _)) in self.nodes.iter().enumerate() {
            if name.contains(|letter: char| matches!(letter, ',' | ';') || letter.is_control()) {
                return invalid(&format!("node {name:?}: use a name without comma, semicolon and control characters"));
            }
            if self.nodes[..index].iter().any(|(other, _)| other == name) {
                return invalid(&format!("node {name} is named twice: name each server once"));
            }
        }
        Ok(())
    }

    fn quorum(&self) -> Result<Quorum, InvalidConfig> {
        let count = self.nodes.len();
        let quorum = u8::try_from(count).ok().and_then(Quorum::of);
        match quorum {
            None => invalid(&format!("{count} servers: use 3 or 5 independent Redis masters, and at most {MAX_NODES}")),
            Some(_) if count == 1 && !self.single_node => invalid(
                "one server: use 3 or 5 independent Redis masters. To accept that the loss of this server is the loss of every \
                 lock, call single_node()",
            ),
            Some(quorum) => Ok(quorum),
        }
    }

    /// The configuration that the servers store. A program names it in plain text, so that an error shows both sides.
    fn membership(&self, quorum: Quorum, longest: Millis) -> Membership {
        let mut names: Vec<&str> = self.nodes.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        let fingerprint = if self.beside_operator {
            fingerprint(&names, quorum.majority(), longest, &self.prefix)
        } else {
            format!("{PROGRAM}{};longest_lease={}ms", names.join(","), longest.0)
        };
        Membership { generation: GENERATION, fingerprint: fingerprint.as_str().into() }
    }
}

/// # Errors
/// Two servers have the same address. Two names of one server are found when it answers.
fn check_addresses(servers: &[Server]) -> Result<(), InvalidConfig> {
    for (index, server) in servers.iter().enumerate() {
        let same = |other: &&Server| other.address.eq_ignore_ascii_case(&server.address);
        if let Some(other) = servers[..index].iter().find(same) {
            return invalid(&format!(
                "nodes {} and {} have the same address: use a separate server for each node",
                other.name, server.name
            ));
        }
    }
    Ok(())
}

fn invalid<T>(text: &str) -> Result<T, InvalidConfig> {
    Err(InvalidConfig(text.to_owned()))
}

fn within(name: &str, value: Duration, least: Duration, most: Duration) -> Result<Millis, InvalidConfig> {
    if value < least || value > most {
        return invalid(&format!("{name} is {value:?}: use {least:?} to {most:?}"));
    }
    Ok(Millis::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const URLS: [&str; 3] = ["redis://a:1", "redis://b:2/", "redis://user:secret@c:3/0"];

    fn refused(builder: &LockerBuilder, part: &str) {
        let error = builder.config().unwrap_err().to_string();
        assert!(error.contains(part) && !error.contains("secret"), "{error}");
    }

    #[test]
    fn a_server_of_the_list_can_have_a_name() {
        let config = LockerBuilder::new(["a=redis://h:1", "b=redis://h:2", "redis://user:x=redis@h:3/0"]).config();
        assert!(config.unwrap_err().to_string().contains("different users"));
        let url = "redis://user:p=w,x@h:3/0";
        let [first, second] = ["h:1", "h:2"].map(|address| url.replace("h:3", address));
        let config = LockerBuilder::new([first, format!("b={second}"), url.to_owned()]).config();
        let names = config.unwrap().nodes.into_iter().map(|node| (node.name, node.address)).collect::<Vec<_>>();
        assert_eq!(names, [("h:1", "h:1"), ("b", "h:2"), ("h:3", "h:3")].map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    /// A list that was split at the comma of a password has such parts.
    #[test]
    fn an_error_shows_no_part_of_a_password() {
        for part in [
            "redis://:secret",
            "secret@h:1",
            "redis://u:secret@h",
            "sec=secret@h:1",
            "secret=redis://h:1/secret",
            "redis://:secret%40h:1",
            "redis://u:secret-h:1",
        ] {
            let list = ["redis://a:1", part, "redis://b:1"];
            refused(&LockerBuilder::new(list), "server 2: ");
        }
    }

    #[test]
    fn servers_are_named_as_written_and_a_url_can_have_a_password() {
        let same =
            URLS.map(|url| url.replace("redis://user:secret@", "redis://").replace("redis://", "redis://:secret@"));
        let config = LockerBuilder::new(same).config().unwrap();
        let names = config.nodes.iter().map(|node| (node.name.as_str(), node.address.as_str())).collect::<Vec<_>>();
        assert_eq!(names, [("a:1", "a:1"), ("b:2", "b:2"), ("c:3", "c:3")]);
        assert_eq!(config.credentials, Some(Credentials { username: None, password: "secret".into() }));
        assert_eq!(&*config.membership.fingerprint, "programs;a:1,b:2,c:3;longest_lease=30000ms");
        let defaults = (config.command_timeout, config.key_prefix.as_str(), config.quorum.as_str());
        assert_eq!(defaults, (Millis(500), "redislease", "default"));
        let config = LockerBuilder::new::<&str>([]).node("x", "redis://a:1").single_node().config().unwrap();
        assert_eq!((config.nodes[0].name.as_str(), config.nodes[0].address.as_str()), ("x", "a:1"));
    }

    #[test]
    fn the_debug_text_shows_no_password() {
        let builder = LockerBuilder::new(URLS).credentials("user", "secret").tls(Tls::new("").client("", "secret"));
        let text = format!("{builder:?}");
        assert!(text.contains("a:1") && !text.contains("secret"), "{text}");
    }

    #[test]
    fn invalid_values_are_named_with_what_to_do() {
        let new = || LockerBuilder::new(URLS);
        refused(&new(), "credentials()");
        refused(&LockerBuilder::new(["redis://a:1"]), "single_node()");
        refused(&LockerBuilder::new::<&str>([]), "0 servers");
        refused(&new().node("a:1", "redis://d:4"), "twice");
        refused(&new().node("d", "http://u:secret@d:4"), "redis://host:port");
        refused(&new().node("d", "redis://d"), "server 4: name host and port");
        refused(&new().node("d", "redis://A:1").node("e", "redis://e:5"), "nodes a:1 and d have the same address");
        refused(&new().node("d", "redis://u:100%@d:4"), "write a `%` in its user or password as `%25`");
        refused(&new().namespace("n".repeat(129)), "namespace has 129 bytes: use 1 to 128");
        refused(&new().namespace(""), "namespace has 0 bytes");
        refused(&new().node("", "redis://d:4"), "a name of");
        refused(&new().node("d,e", "redis://d:4"), "without comma");
        refused(&new().namespace("a\0b"), "no control character");
        refused(&new().node("d", "redis://d:4/7"), "database 0");
        refused(&new().node("d", "rediss://d:4"), "tls()");
        refused(&new().namespace("a/b"), "no slash");
        refused(&new().prefix(""), "prefix");
        refused(&new().longest_lease(Duration::from_millis(1)), "longest_lease is 1ms");
        refused(&new().command_timeout(Duration::from_mins(1)), "command_timeout is 60s");
    }
}
