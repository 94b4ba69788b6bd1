use core::fmt;
use core::time::Duration;
use std::collections::BTreeSet;

use kube::ResourceExt;
use kube::core::Selector;
use redislease_core::marker::fingerprint;
use redislease_core::quorum::majority;
use redislease_core::time::Millis;

use super::InvalidSpec;
use super::error::{MAX_LEASE, Reader};
use super::selector;
use crate::api::names;
use crate::api::quorum::{QuorumNode, QuorumTls};
use crate::api::{RedisQuorum, RedisQuorumSpec};

const MAX_NODES: usize = 9;
/// With a shorter one no lease is possible, and the operator could not keep the lock of its leader.
const LEAST_LEASE: Duration = Duration::from_secs(1);
/// With a shorter one the nodes would be up and down all the time. It is used instead of a shorter one, which an earlier version of the
/// CustomResourceDefinition accepted: without a valid quorum, a new process loses the terms on it.
const LEAST_TIMEOUT: Duration = Duration::from_millis(10);
/// With a longer one a stopped node would be shown as voting all the time, for up to an hour in an earlier version. It is used instead of a
/// longer one.
const MOST_TIMEOUT: Duration = Duration::from_secs(5);

/// A `RedisQuorum` with a valid spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidQuorum {
    /// The namespace of the quorum and of its Secret.
    pub namespace: String,
    /// The name of the quorum.
    pub name: String,
    /// The nodes, sorted by name: at least one, with unique names and unique addresses.
    pub nodes: Vec<ValidNode>,
    /// The prefix of every Redis key.
    pub key_prefix: String,
    /// The longest duration of a lease on this quorum.
    pub max_lease: Duration,
    /// How long the operator waits for the answer of a node.
    pub command_timeout: Duration,
    /// The name of the Secret with `password` and, for a Redis ACL user, `username`.
    pub secret: Option<String>,
    /// TLS for the connections.
    pub tls: Option<ValidTls>,
    /// The labels of the namespaces whose leases may use the quorum; `None` for all namespaces.
    pub allowed_namespaces: Option<Selector>,
}

/// TLS for the connections to every node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidTls {
    /// The name of the Secret with `ca.crt` and, for mutual TLS, `tls.crt` and `tls.key`.
    pub secret: String,
    /// The name in the certificates; `None` for the host of each node's address.
    pub server_name: Option<String>,
}

/// One Redis master.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValidNode {
    /// The name: a DNS label.
    pub name: String,
    /// The address that the node listens on.
    pub address: Address,
}

/// A host, without the brackets of an IPv6 address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// A DNS name or an IP address.
    pub host: String,
    /// 1 to 65535.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl ValidQuorum {
    /// The number of nodes that make a majority of the configured nodes, whether they are reachable or not.
    pub fn majority(&self) -> usize {
        majority(self.nodes.len())
    }

    /// The fingerprint of this configuration: 16 hexadecimal digits. Each node's marker key contains it.
    ///
    /// It stands for the node names, the majority, the longest lease and the prefix of all keys. A quorum that was created again with
    /// another prefix has other keys, so a term on the old ones must not be looked for there. The fingerprint detects mistakes, not
    /// attacks: an attacker who can write markers can do anything.
    pub fn fingerprint(&self) -> String {
        let names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        fingerprint(&names, self.majority(), Millis::from(self.max_lease), &self.key_prefix)
    }
}

impl TryFrom<&RedisQuorum> for ValidQuorum {
    type Error = InvalidSpec;

    fn try_from(quorum: &RedisQuorum) -> Result<Self, InvalidSpec> {
        let namespace = quorum.namespace().unwrap_or_default();
        let name = quorum.name_any();
        let read = Reader::new("RedisQuorum", &namespace, &name);
        let spec = &quorum.spec;
        let (auth, allowed) = (spec.auth.as_ref(), spec.allowed_namespaces.as_ref());
        Ok(Self {
            nodes: nodes(&read, spec)?,
            key_prefix: key_prefix(&read, spec)?,
            max_lease: max_lease(&read, spec)?,
            command_timeout: read
                .duration("spec.commandTimeout", &spec.command_timeout)?
                .clamp(LEAST_TIMEOUT, MOST_TIMEOUT),
            secret: auth.map(|auth| secret(&read, "spec.auth.secretRef.name", &auth.secret_ref.name)).transpose()?,
            tls: spec.tls.as_ref().map(|spec| tls(&read, spec)).transpose()?,
            allowed_namespaces: allowed
                .map(|labels| selector::parse(&read, "spec.allowedNamespaces", labels))
                .transpose()?,
            namespace,
            name,
        })
    }
}

fn nodes(read: &Reader, spec: &RedisQuorumSpec) -> Result<Vec<ValidNode>, InvalidSpec> {
    let count = spec.nodes.len();
    let fits = (1..=MAX_NODES).contains(&count);
    read.require(fits, "spec.nodes", format!("{count} nodes"), "have 1 to 9 entries")?;
    let must = "have three entries, because one node tolerates no failure; for tests set allowSingleNode: true";
    read.require(count > 1 || spec.allow_single_node, "spec.nodes", "1 node", must)?;
    let mut nodes = spec.nodes.iter().map(|node| valid_node(read, node)).collect::<Result<Vec<_>, _>>()?;
    nodes.sort();
    let all = nodes.iter().map(|node| format!("{}={}", node.name, node.address)).collect::<Vec<_>>().join(", ");
    let names: BTreeSet<_> = nodes.iter().map(|node| &node.name).collect();
    read.require(names.len() == count, "spec.nodes", &all, "have unique names")?;
    let addresses: BTreeSet<_> = nodes.iter().map(|node| &node.address).collect();
    let must = "have unique addresses: two nodes on one server fail together";
    read.require(addresses.len() == count, "spec.nodes", all, must)?;
    Ok(nodes)
}

fn valid_node(read: &Reader, node: &QuorumNode) -> Result<ValidNode, InvalidSpec> {
    let must =
        "consist of lower-case letters, digits and '-', at most 63 of them, and begin and end with a letter or digit";
    read.require(names::is_dns_label(&node.name), "spec.nodes[].name", &node.name, must)?;
    let must = "be host:port, such as redis-0.redis:6379 or [fd00::1]:6379, with a port from 1 to 65535";
    let address =
        parse_address(&node.address).ok_or_else(|| read.invalid("spec.nodes[].address", &node.address, must))?;
    Ok(ValidNode { name: node.name.clone(), address })
}

/// Whether a text consists of letters, digits and `others`, and begins and ends with a letter or digit.
fn is_plain(text: &str, others: &[u8]) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || others.contains(byte))
}

fn parse_address(text: &str) -> Option<Address> {
    let (host, port) = text.rsplit_once(':')?;
    if port.starts_with('0') || !port.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let port = port.parse().ok()?;
    let host = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(inner) => inner.parse::<core::net::Ipv6Addr>().ok()?.to_string(),
        None if is_host(host) => host.to_owned(),
        None => return None,
    };
    Some(Address { host, port })
}

fn is_host(host: &str) -> bool {
    is_plain(host, b"-.")
}

fn key_prefix(read: &Reader, spec: &RedisQuorumSpec) -> Result<String, InvalidSpec> {
    let prefix = &spec.key_prefix;
    let must =
        "consist of letters, digits, '.', '_' and '-', at most 63 of them, and begin and end with a letter or digit";
    read.require(prefix.len() <= 63 && is_plain(prefix, b"-._"), "spec.keyPrefix", prefix, must)?;
    Ok(prefix.clone())
}

fn max_lease(read: &Reader, spec: &RedisQuorumSpec) -> Result<Duration, InvalidSpec> {
    let text = &spec.max_lease_duration;
    text.parse().filter(|duration| (LEAST_LEASE..=MAX_LEASE).contains(duration)).ok_or_else(|| {
        let must = "be a duration from 1s to 1h, written in h, m, s and ms, such as 30s, 1m30s or 2s500ms";
        read.invalid("spec.maxLeaseDuration", text, must)
    })
}

fn secret(read: &Reader, field: &str, name: &str) -> Result<String, InvalidSpec> {
    read.require(names::is_object_name(name), field, name, "be the name of a Secret")?;
    Ok(name.to_owned())
}

fn tls(read: &Reader, tls: &QuorumTls) -> Result<ValidTls, InvalidSpec> {
    let secret = secret(read, "spec.tls.secretRef.name", &tls.secret_ref.name)?;
    if let Some(name) = &tls.server_name {
        let is_valid = is_host(name) || name.parse::<core::net::IpAddr>().is_ok();
        read.require(is_valid, "spec.tls.serverName", name, "be a DNS name or an IP address, without a port")?;
    }
    Ok(ValidTls { secret, server_name: tls.server_name.clone() })
}
