//! The servers, as a program sees them.

use std::fmt;
use std::time::Duration;

use redislease_lock::clock;
use redislease_lock::nodes::{Config, Misconfiguration, NodeState as State, NodeStatus};

/// One of the Redis servers. See the example of [`Locker::ready`](crate::Locker::ready).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// Its name: `host:port` as written in the list of servers, or the name given to [`LockerBuilder::node`](crate::LockerBuilder::node).
    pub name: String,
    /// Whether it votes.
    pub state: NodeState,
    /// One sentence that says why it does not vote and what to do. While it votes, it is empty, unless the server did not accept the
    /// current password or certificate and an earlier one is in use.
    pub message: String,
}

/// Whether a server votes. See the example of [`Locker::ready`](crate::Locker::ready).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeState {
    /// It votes.
    Up,
    /// There is no connection.
    Down,
    /// It may have lost data of these locks: a first start, a restart or a flush. It votes when every lock that it may have forgotten
    /// has expired, which is about this long from now. Zero: it cannot vote yet for another reason, which the message of the server says.
    Waits(Duration),
    /// It cannot vote before the server or the program is configured in another way.
    Misconfigured,
}

impl Node {
    /// The servers of a `Locker`. `beside` is the text of [`beside_operator`].
    pub(crate) fn list(statuses: &[NodeStatus], beside: Option<&str>) -> Vec<Self> {
        statuses.iter().map(|status| Self::of(status, beside)).collect()
    }

    pub(crate) fn of(status: &NodeStatus, beside: Option<&str>) -> Self {
        let state = match status.state {
            State::Up => NodeState::Up,
            State::Down => NodeState::Down,
            State::Quarantined { until } => NodeState::Waits(until.since(clock::now()).into()),
            State::Misconfigured(_) => NodeState::Misconfigured,
        };
        let message = match status.state {
            State::Misconfigured(Misconfiguration::ConfigMismatch) => mismatch(&status.message, beside),
            State::Quarantined { .. } if beside.is_some() => {
                for_programs(&status.message).replace("it votes when the longest lease has passed", BY_OPERATOR)
            }
            _ => for_programs(&status.message),
        };
        Self { name: status.name.clone(), state, message }
    }
}

/// The configuration of a program beside an operator, in words: the servers store only a hash of it. `None` for other programs.
pub(crate) fn beside_operator(config: &Config) -> Option<String> {
    let names: Vec<&str> = config.nodes.iter().map(|node| &*node.name).collect();
    let (majority, longest) = (names.len() / 2 + 1, Duration::from(config.longest_lease));
    let prefix = &config.key_prefix;
    let words =
        || format!("nodes {}, majority {majority}, longest lease {longest:?}, prefix {prefix}", names.join(", "));
    config.has_statuses.then(words)
}

/// The message of a node whose marker names another configuration, with advice for a program.
fn mismatch(message: &str, beside: Option<&str>) -> String {
    let facts = message.split_once(" (node names").map_or(message, |(facts, _)| facts);
    let facts = beside.map_or_else(|| facts.to_owned(), |ours| format!("{facts} ({ours})"));
    let key = message.rsplit_once(" (the key ").map_or("", |(_, key)| key.trim_end_matches(')'));
    let theirs = facts.split_once("names the configuration ").map_or("", |(_, theirs)| theirs);
    let by_program = theirs.split_once(':').is_some_and(|(_generation, name)| name.starts_with(PROGRAM));
    if by_program && beside.is_some() {
        format!(
            "{facts}. Programs without an operator use this server with this key prefix: do not call beside_operator()"
        )
    } else if by_program {
        format!(
            "{facts}. All programs must name the same nodes and the same longest_lease: change this program. To change all of \
             them: stop every program for one longest_lease, and delete the Redis key {key} on every server. \
             Another prefix is another set of locks and tokens"
        )
    } else {
        let call = if beside.is_some() { "use" } else { "call beside_operator() with" };
        format!(
            "{facts}. An operator of RedisLease uses this server with this key prefix (its marker is the Redis key {key}): {call} \
             the same node names, prefix and longest lease as the operator. Another prefix is another set of locks and tokens"
        )
    }
}

/// Replaces the words of an operator in the message of a node.
fn for_programs(message: &str) -> String {
    [
        ("Its counter must start above the fencing tokens in the statuses of all leases, and the API server has not listed them yet",
         "Only the operator can let it vote, because only it knows the tokens of its resources: see that the operator runs"),
        ("set `spec.tls` in the RedisQuorum", "write `rediss://` and call tls()"),
        ("remove `spec.tls` from the RedisQuorum", "write `redis://` and do not call tls()"),
        ("remove `spec.auth` from the RedisQuorum", "remove the password from the URLs or credentials()"),
        ("in the RedisQuorum's secret", "in credentials() or in the URLs"),
        ("in the key `ca.crt` of the TLS secret: add the authority that signed it to `ca.crt`",
         "that was passed to tls(): add the authority that signed it"),
        ("set `spec.tls.serverName` to", "set the server name in tls() to"),
        ("add the keys `tls.crt` and `tls.key` to the TLS secret", "pass one and its key to tls()"),
        ("that signed `tls.crt`, or replace `tls.crt` and `tls.key` in the TLS secret",
         "that signed it, or pass another one to tls()"),
        ("replace `tls.crt` and `tls.key` in the TLS secret", "pass another one to tls()"),
        ("restore the spec under which it was admitted, or choose another keyPrefix, or stop every operator that uses it for its \
          longest lease and then delete the marker on every node",
         "name the same nodes and the same longest_lease in all programs. To change all of them: stop every program for one longest_lease, \
          and delete the marker on every server"),
    ]
    .iter()
    .fold(message.to_owned(), |text, (operator, program)| text.replace(operator, program))
}

/// The end of the message of a server that does not vote by itself when the time of [`NodeState::Waits`] has passed.
const BY_OPERATOR: &str = "the operator lets it vote when the longest lease has passed";

/// The begin of the configuration in the marker of a server that programs use without an operator.
pub(crate) const PROGRAM: &str = "programs;";

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.state, self.message.is_empty()) {
            (NodeState::Waits(left), _) if !left.is_zero() && !self.message.ends_with(BY_OPERATOR) => {
                write!(f, "{} (it votes in {} s)", self.message, left.as_millis().div_ceil(1000))
            }
            (_, true) => write!(f, "node {} votes", self.name),
            (_, false) => f.write_str(&self.message),
        }
    }
}

/// Says that no majority votes.
pub(crate) fn no_majority(nodes: &[Node]) -> String {
    match nodes.len() {
        1 => "the Redis node does not vote".to_owned(),
        count => format!("no majority of the {count} Redis nodes votes"),
    }
}

/// The nodes that do not vote, for an error message. What is the same for several of them is said once.
pub(crate) fn not_voting(nodes: &[Node]) -> String {
    let texts = nodes.iter().filter(|node| node.state != NodeState::Up).map(Node::to_string);
    // The names of the nodes, by what is said of them.
    let mut said: Vec<(String, Vec<String>)> = Vec::new();
    for text in texts {
        let parts = text.strip_prefix("node ").and_then(|text| text.split_once(": "));
        let (name, what) = parts.unwrap_or(("", &text));
        match said.iter_mut().find(|(other, _)| other == what) {
            Some((_, names)) => names.push(name.to_owned()),
            None => said.push((what.to_owned(), vec![name.to_owned()])),
        }
    }
    let sentences = said.iter().map(|(what, names)| match &names[..] {
        [name] if name.is_empty() => what.clone(),
        [name] => format!("node {name}: {what}"),
        _ => format!("nodes {}, each: {what}", names.join(", ")),
    });
    sentences.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_same_for_several_nodes_is_said_once() {
        let node = |name: &str, why: &str, state| Node {
            name: name.into(),
            state,
            message: format!("node {name} ({name}:1): {why}"),
        };
        let refused = "cannot connect: Connection refused";
        let nodes = [
            node("a", refused, NodeState::Down),
            node("b", "", NodeState::Up),
            node("c", "it is a replica", NodeState::Misconfigured),
            node("d", refused, NodeState::Down),
        ];
        assert_eq!(
            not_voting(&nodes),
            "nodes a (a:1), d (d:1), each: cannot connect: Connection refused; node c (c:1): it is a replica"
        );
    }

    #[test]
    fn a_mismatch_says_who_wrote_the_marker_and_what_to_do() {
        let message = |theirs: &str| {
            format!(
                "node a (a:1): its marker names the configuration {theirs}, ours is 1:programs;a;q=1;max=9ms (node names, \
                 majority, maxLeaseDuration, keyPrefix): restore the old spec, or delete the marker on every node (the \
                 key `p:marker`)"
            )
        };
        let seen = |theirs: &str| mismatch(&message(theirs), None);
        let program = seen("1:programs;a;q=1;max=8ms");
        assert!(program.contains("max=8ms, ours is 1:programs;a;q=1;max=9ms. All programs"), "{program}");
        assert!(program.contains("delete the Redis key `p:marker` on every server."), "{program}");
        let operator = seen("1:0123456789abcdef");
        assert!(operator.contains("(its marker is the Redis key `p:marker`): call beside_operator()"), "{operator}");
        assert!(!(program + &operator).contains("spec"));
        let beside = mismatch(&message("1:programs;a;q=1;max=9ms"), Some("nodes a"));
        assert!(beside.ends_with("do not call beside_operator()"), "{beside}");
    }
}
