//! What flags and their environment variables may say: what cannot be used is refused with what can.

use std::net::SocketAddr;

use crate::api::names;

/// The longest name that events may be reported under.
const MAX_INSTANCE: usize = 128;

pub(super) fn cluster_name(text: &str) -> Result<String, String> {
    let plain = text.len() <= 63 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    if plain {
        Ok(text.to_owned())
    } else {
        Err("a cluster name has at most 63 letters, digits, '-', '.' and '_'".to_owned())
    }
}

pub(super) fn namespace(text: &str) -> Result<String, String> {
    if names::is_dns_label(text) {
        Ok(text.to_owned())
    } else {
        Err("a namespace has 1 to 63 lower case letters, digits and '-', and '-' neither first nor last".to_owned())
    }
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "an address to listen on is an IP and a port, such as 0.0.0.0:8080, 127.0.0.1:8080 or [::]:8080".to_owned()
    })
}

pub(super) fn instance(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/".contains(&byte);
    if (1..=MAX_INSTANCE).contains(&text.len()) && text.bytes().all(plain) {
        Ok(text.to_owned())
    } else {
        Err(format!("the name of an instance has 1 to {MAX_INSTANCE} letters, digits, '-', '.', '_' and '/'"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_name_never_contains_what_separates_the_parts_of_a_holder() {
        assert_eq!(cluster_name("eu-west-1"), Ok("eu-west-1".into()));
        assert_eq!(cluster_name(""), Ok(String::new()));
        for name in ["eu/west", "eu west", &"x".repeat(64)] {
            assert!(cluster_name(name).unwrap_err().contains("at most 63"), "{name}");
        }
    }

    #[test]
    fn a_namespace_is_a_label() {
        assert_eq!(namespace("redislease-system"), Ok("redislease-system".into()));
        for name in ["", "Foo", "foo/bar", "a b", "-a", "a-", &"x".repeat(64)] {
            assert!(namespace(name).unwrap_err().contains("1 to 63 lower case"), "{name}");
        }
    }

    #[test]
    fn an_address_without_an_ip_is_answered_with_examples() {
        assert_eq!(address("[::]:8080").map(|address| address.port()), Ok(8080));
        for text in [":8080", "localhost:8080", "8080", ""] {
            assert!(address(text).unwrap_err().contains("0.0.0.0:8080"), "{text}");
        }
    }

    #[test]
    fn an_instance_has_a_name() {
        assert_eq!(instance("pod-0"), Ok("pod-0".into()));
        for name in ["", "a b", &"x".repeat(129)] {
            assert!(instance(name).unwrap_err().contains("1 to 128"), "{name}");
        }
    }
}
