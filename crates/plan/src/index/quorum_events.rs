//! Takes the changes of quorums, of namespaces and of the authority over a quorum. The leases that they concern become due.

use std::collections::BTreeSet;
use std::sync::Arc;

use redislease_core::op::Token;

use super::{ImplausibleToken, Index, LeaseId, NamespaceFacts};
use crate::plan::QuorumFacts;

impl Index {
    /// The facts about a quorum have changed.
    pub fn quorum_changed(&mut self, name: &str, facts: Option<Arc<QuorumFacts>>) {
        let concerned = self.quorums.changed(name, facts);
        self.mark_all(concerned);
    }

    /// A list of namespaces begins.
    pub fn namespace_list_begins(&mut self) {
        self.namespace_labels.list_begins();
    }

    /// Takes a namespace of an event or of a list.
    pub fn namespace_seen(&mut self, facts: NamespaceFacts) {
        let name = facts.name.clone();
        if self.namespace_labels.seen(facts) {
            self.mark_namespace(&name);
        }
    }

    /// The last event of a namespace.
    pub fn namespace_gone(&mut self, name: &str) {
        if self.namespace_labels.gone(name) {
            self.mark_namespace(name);
        }
    }

    /// Handles the end of a list of namespaces.
    pub fn namespace_list_ends(&mut self) {
        for name in self.namespace_labels.list_ends() {
            self.mark_namespace(&name);
        }
    }

    fn mark_namespace(&mut self, name: &str) {
        let leases = self.namespaces.get(name).map(|pods| pods.names.values().copied().collect::<Vec<LeaseId>>());
        self.mark_all(leases.unwrap_or_default());
    }

    /// The authority of this process over the leases of a quorum has changed.
    pub fn mark_quorum(&mut self, name: &str) {
        let concerned = self.quorums.leases(name);
        self.mark_all(concerned);
    }

    /// Every RedisQuorum that existed at the start has been read.
    pub fn quorums_read(&mut self) {
        let concerned = self.quorums.all_read();
        self.mark_all(concerned);
    }

    /// The greatest token that any status on this quorum has shown.
    pub fn floor(&self, quorum: &str) -> Token {
        self.quorums.floor(quorum)
    }

    /// Quorums whose greatest token has grown since the last call.
    pub fn raised_floors(&mut self) -> Vec<(String, Token)> {
        self.quorums.raised_floors()
    }

    /// Implausible tokens that statuses have shown since the last call.
    pub fn implausible_tokens(&mut self) -> BTreeSet<ImplausibleToken> {
        self.quorums.implausible_tokens()
    }
}
