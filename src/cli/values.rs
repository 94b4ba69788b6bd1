//! Parsers for the values of flags. Each error message says which values are valid.

use std::net::SocketAddr;
use std::time::Duration;

use redislease_plan::api::{self, names};
use redislease_plan::election::HandoverTarget;

/// The maximum length of `reportingInstance` in a Kubernetes Event.
const MAX_INSTANCE: usize = 128;

/// The text if it is valid, or else the rule.
fn checked(text: &str, is_valid: bool, rule: &str) -> Result<String, String> {
    if is_valid { Ok(text.to_owned()) } else { Err(rule.to_owned()) }
}

pub(super) fn cluster_name(text: &str) -> Result<String, String> {
    let rule = "a cluster name must have at most 63 letters, digits, '-', '.' and '_'";
    checked(text, names::is_cluster_name(text), rule)
}

pub(super) fn namespace(text: &str) -> Result<String, String> {
    let rule = "a namespace must have 1 to 63 lower-case letters, digits and '-', and must begin and end with a letter or digit";
    checked(text, names::is_dns_label(text), rule)
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "the address must be an IP address and a port, such as 0.0.0.0:8080, 127.0.0.1:8080 or [::]:8080".to_owned()
    })
}

pub(super) fn instance(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/".contains(&byte);
    let is_valid = (1..=MAX_INSTANCE).contains(&text.len()) && text.bytes().all(plain);
    let rule = format!("an instance name must have 1 to {MAX_INSTANCE} letters, digits, '-', '.', '_' and '/'");
    checked(text, is_valid, &rule)
}

pub(super) fn handover_target(text: &str) -> Result<String, String> {
    checked(text, HandoverTarget::of(Some(text)).is_ok(), "the target must be pod/NAME or cluster/NAME")
}

pub(super) fn wait(text: &str) -> Result<Duration, String> {
    let parsed = api::Duration::new(text).parse();
    parsed.ok_or_else(|| "the duration must be a number with a unit, such as 30s, 2m or 0s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_name_contains_no_slash() {
        assert_eq!(cluster_name("eu-west-1"), Ok("eu-west-1".into()));
        assert_eq!(cluster_name(""), Ok(String::new()));
        for name in ["eu/west", "eu west", &"x".repeat(64)] {
            assert!(cluster_name(name).unwrap_err().contains("at most 63"), "{name}");
        }
    }

    #[test]
    fn namespace_is_a_dns_label() {
        assert_eq!(namespace("redislease-system"), Ok("redislease-system".into()));
        for name in ["", "Foo", "foo/bar", "a b", "-a", "a-", &"x".repeat(64)] {
            assert!(namespace(name).unwrap_err().contains("1 to 63 lower-case"), "{name}");
        }
    }

    #[test]
    fn invalid_address_error_has_examples() {
        assert_eq!(address("[::]:8080").map(|address| address.port()), Ok(8080));
        for text in [":8080", "localhost:8080", "8080", ""] {
            assert!(address(text).unwrap_err().contains("0.0.0.0:8080"), "{text}");
        }
    }

    #[test]
    fn instance_name_is_not_empty() {
        assert_eq!(instance("pod-0"), Ok("pod-0".into()));
        for name in ["", "a b", &"x".repeat(129)] {
            assert!(instance(name).unwrap_err().contains("1 to 128"), "{name}");
        }
    }

    #[test]
    fn a_handover_has_a_pod_or_a_cluster_as_its_target() {
        for target in ["pod/billing-1", "cluster/eu-west-1"] {
            assert_eq!(handover_target(target), Ok(target.into()));
        }
        for target in ["", "billing-1", "pod/", "node/x"] {
            assert!(handover_target(target).unwrap_err().contains("pod/NAME or cluster/NAME"), "{target}");
        }
        assert_eq!((wait("0s"), wait("2m")), (Ok(Duration::ZERO), Ok(Duration::from_mins(2))));
        assert!(wait("2").unwrap_err().contains("with a unit"));
    }
}
