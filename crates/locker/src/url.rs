//! The URLs of the servers.

use redislease_lock::nodes::Credentials;

/// One server, from its URL.
pub struct Server {
    pub name: String,
    pub address: String,
    pub tls: bool,
    pub credentials: Option<Credentials>,
}

impl Server {
    /// # Errors
    /// What to do. The text shows no part of the URL: it may be a part of a password.
    pub fn parse(name: &str, url: &str) -> Result<Self, &'static str> {
        if url.is_empty() {
            return Err("its URL is empty: remove the comma before it");
        }
        let (tls, rest) = match url.split_once("://") {
            Some(("redis", rest)) => (false, rest),
            Some(("rediss", rest)) => (true, rest),
            _ => return Err("write its URL as `redis://host:port` or `rediss://host:port`"),
        };
        let (user, rest) = rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
        let (address, database) = rest.split_once('/').unwrap_or((rest, ""));
        let has_port =
            address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        if !has_port {
            return Err("name host and port in its URL, as in `redis://host:6379`");
        }
        // Without the `@`, the host would contain the password.
        let has_more = address.rsplit_once(':').is_some_and(|(host, _)| host.contains(':') && !host.ends_with(']'));
        if has_more || address.contains('%') {
            return Err("write an IPv6 address in brackets, and an `@` between the password and the host, as in \
                        `redis://user:password@host:6379`");
        }
        if !database.is_empty() && database != "0" {
            return Err("only database 0 can be used: end its URL after the port");
        }
        if name.is_empty() {
            return Err("give it a name of at least one character");
        }
        let credentials = user.map(|user| {
            let (user, password) = user.split_once(':').unwrap_or((user, ""));
            Ok::<_, &str>(credentials(&decoded(user)?, &decoded(password)?))
        });
        let credentials = credentials.transpose()?;
        Ok(Self { name: name.to_owned(), address: address.to_owned(), tls, credentials })
    }
}

/// The name and the URL of `name=url`. Without a name, it is the `host:port` of the URL.
pub fn named(text: String) -> (String, String) {
    let is_url = |text: &str| text.starts_with("redis://") || text.starts_with("rediss://");
    if let Some((name, url)) = text.split_once('=').filter(|(_, url)| is_url(url)) {
        return (name.to_owned(), url.to_owned());
    }
    let rest = text.split_once("://").map_or(text.as_str(), |(_, rest)| rest);
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let address = rest.split_once('/').map_or(rest, |(address, _)| address);
    (address.to_owned(), text)
}

/// A part of a URL with its `%` sequences replaced.
fn decoded(text: &str) -> Result<String, &'static str> {
    let bytes = bytes(text).ok_or("write a `%` in its user or password as `%25`")?;
    String::from_utf8(bytes)
        .map_err(|_| "its user or password is not UTF-8: write other characters in UTF-8, such as `%C3%A9` for `é`")
}

/// `None` if one of the `%` sequences is not `%` and two hexadecimal digits.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    Some(bytes)
}

pub fn credentials(user: &str, password: &str) -> Credentials {
    Credentials { username: Some(user.to_owned()).filter(|user| !user.is_empty()), password: password.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_password_are_percent_decoded() {
        let of = |url: &str| Server::parse("a", url).map(|server| server.credentials);
        let (user, password) = (Some("a:b".to_owned()), "p@w/ä%".to_owned());
        let read = of("redis://a%3ab:p%40w%2F%c3%A4%25@h:1");
        assert_eq!(read, Ok(Some(Credentials { username: user, password })));
        let plain = Credentials { username: None, password: "p@w/:".to_owned() };
        assert_eq!(of("redis://:p@w/:@h:1"), Ok(Some(plain)), "what is not a percent sign can be written as it is");
        for broken in ["%", "%4", "%4x", "%+1", "%é"] {
            let refused = of(&format!("redis://:{broken}@h:1"));
            assert_eq!(refused, Err("write a `%` in its user or password as `%25`"), "{broken}");
        }
        for other in ["%ff", "%E4x", "%c3"] {
            let refused = of(&format!("redis://{other}:p@h:1")).unwrap_err();
            assert!(refused.contains("UTF-8"), "{other}: {refused}");
        }
    }
}
