//! The facts about quorums that leases use.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt;
use kube::core::SelectorExt;
use redislease_core::op::Token;

use super::ids::LeaseId;
use super::namespace_labels::Labels;
use crate::api::conditions::LeaseReady;
use crate::api::{RedisLease, RedisLeaseStatus};
use crate::plan::QuorumFacts;

/// A token in the status of a lease that no Redis node can have given. The index ignores it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub struct ImplausibleToken {
    pub namespace: String,
    pub name: String,
    pub token: Token,
}

#[derive(Debug, Default)]
struct QuorumEntry {
    /// `None` while no such quorum exists.
    facts: Option<Arc<QuorumFacts>>,
    leases: BTreeSet<LeaseId>,
    floor: Token,
}

/// The quorums by name.
#[derive(Debug, Default)]
pub(super) struct Quorums {
    namespace: String,
    entries: BTreeMap<String, QuorumEntry>,
    /// Whether every RedisQuorum that existed at the start has been read.
    read: bool,
    raised: BTreeSet<String>,
    implausible: BTreeSet<ImplausibleToken>,
}

impl Quorums {
    pub fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..Self::default() }
    }

    pub fn join(&mut self, quorum: &str, lease: LeaseId) {
        self.entries.entry(quorum.to_owned()).or_default().leases.insert(lease);
    }

    /// Removes a lease. A quorum that does not exist is forgotten with the last lease that names it.
    pub fn leave(&mut self, quorum: &str, lease: LeaseId) {
        let Some(entry) = self.entries.get_mut(quorum) else { return };
        entry.leases.remove(&lease);
        if entry.leases.is_empty() && entry.facts.is_none() {
            self.entries.remove(quorum);
            self.raised.remove(quorum);
        }
    }

    /// Takes the current facts about a quorum; `None` if it does not exist. Returns the leases for which something has
    /// changed.
    pub fn changed(&mut self, name: &str, facts: Option<Arc<QuorumFacts>>) -> BTreeSet<LeaseId> {
        let entry = self.entries.entry(name.to_owned()).or_default();
        let before = std::mem::replace(&mut entry.facts, facts);
        let same = match (&before, &entry.facts) {
            (Some(before), Some(now)) => are_equivalent(before, now),
            (None, None) => true,
            _ => false,
        };
        let concerned = if same { BTreeSet::new() } else { entry.leases.clone() };
        if entry.leases.is_empty() && entry.facts.is_none() {
            self.entries.remove(name);
        }
        concerned
    }

    pub fn leases(&self, name: &str) -> BTreeSet<LeaseId> {
        self.entries.get(name).map(|entry| entry.leases.clone()).unwrap_or_default()
    }

    /// Every RedisQuorum that existed at the start has been read. Returns the leases that name another one.
    pub fn all_read(&mut self) -> BTreeSet<LeaseId> {
        if std::mem::replace(&mut self.read, true) {
            return BTreeSet::new();
        }
        let missing = self.entries.values().filter(|entry| entry.facts.is_none());
        missing.flat_map(|entry| entry.leases.iter().copied()).collect()
    }

    pub fn facts(&self, name: &str) -> Arc<QuorumFacts> {
        if let Some(facts) = self.entries.get(name).and_then(|entry| entry.facts.clone()) {
            return facts;
        }
        Arc::new(QuorumFacts { read: self.read, obstacle: Some(self.missing(name)), ..QuorumFacts::default() })
    }

    /// The facts for a lease in a namespace with these labels. `None`: the labels are not known yet.
    pub fn facts_for(&self, name: &str, labels: Option<&Labels>) -> Arc<QuorumFacts> {
        let facts = self.facts(name);
        let Some(allowed) = facts.valid.as_ref().and_then(|valid| valid.allowed_namespaces.as_ref()) else {
            return facts;
        };
        match labels.map(|labels| allowed.matches(labels)) {
            Some(true) => facts,
            // A tenant that may not use the quorum learns nothing about it.
            Some(false) => Arc::new(QuorumFacts {
                obstacle: Some(self.missing(name)),
                valid: None,
                mismatch: None,
                denied: true,
                ..QuorumFacts::clone(&facts)
            }),
            // No new term starts, and no term ends.
            None => {
                let message = format!(
                    "The operator has not read the labels of this namespace, which decide whether it may use RedisQuorum {}/{name}.",
                    self.namespace
                );
                let unknown = Some((LeaseReady::QuorumUnavailable, message));
                Arc::new(QuorumFacts { obstacle: facts.obstacle.clone().or(unknown), ..QuorumFacts::clone(&facts) })
            }
        }
    }

    /// The same sentence for a quorum that does not exist and for one that does not allow the namespace.
    fn missing(&self, name: &str) -> (LeaseReady, String) {
        let message = format!(
            "spec.quorumRef names RedisQuorum {}/{name}, which does not exist or does not allow this namespace: \
             create it there, allow the namespace in its allowedNamespaces, or create this lease again with another quorumRef",
            self.namespace
        );
        (LeaseReady::InvalidReference, message)
    }

    pub fn note_token(&mut self, lease: Option<&RedisLease>) {
        let Some(lease) = lease else { return };
        let Some(token) = lease.status.as_ref().map(RedisLeaseStatus::token) else { return };
        if !token.is_plausible() {
            let (namespace, name) = (lease.namespace().unwrap_or_default(), lease.name_any());
            self.implausible.insert(ImplausibleToken { namespace, name, token });
            return;
        }
        let quorum = &lease.spec.quorum_ref.name;
        if let Some(entry) = self.entries.get_mut(quorum).filter(|entry| token > entry.floor) {
            entry.floor = token;
            self.raised.insert(quorum.clone());
        }
    }

    pub fn floor(&self, quorum: &str) -> Token {
        self.entries.get(quorum).map_or(Token(0), |entry| entry.floor)
    }

    pub fn raised_floors(&mut self) -> Vec<(String, Token)> {
        let raised = std::mem::take(&mut self.raised);
        raised.into_iter().map(|name| (name.clone(), self.floor(&name))).collect()
    }

    pub fn implausible_tokens(&mut self) -> BTreeSet<ImplausibleToken> {
        std::mem::take(&mut self.implausible)
    }
}

/// Whether both facts lead to the same decisions and the same status: a lease depends only on whether a majority of the
/// nodes votes.
fn are_equivalent(before: &QuorumFacts, now: &QuorumFacts) -> bool {
    let majority = |facts: &QuorumFacts| facts.open.as_ref().is_some_and(|open| facts.up >= open.quorum.majority());
    majority(before) == majority(now) && QuorumFacts { up: now.up, ..before.clone() } == *now
}
