//! The address of a node.

use std::fmt;

/// The address of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// Reads `host:port`, an IPv6 address in brackets.
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        let plain = !host.is_empty() && !host.contains(['/', '@', ' ']) && (bare.is_some() || !host.contains(':'));
        Some(Self { host: host.to_owned(), port: port.parse().ok().filter(|port| *port > 0)? }).filter(|_| plain)
    }

    /// The host, an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The TCP port, above zero.
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, host, port) in
            [("redis-0:6379", "redis-0", 6379), ("10.0.0.1:1", "10.0.0.1", 1), ("[::1]:6379", "::1", 6379)]
        {
            assert_eq!(Address::parse(text), Some(Address { host: host.into(), port }), "{text}");
        }
        for text in
            ["", "redis", "redis:", ":6379", "redis:0", "redis:70000", "::1:6379", "a/b:1", "u@h:1", "redis://h:1"]
        {
            assert_eq!(Address::parse(text), None, "{text}");
        }
    }
}
