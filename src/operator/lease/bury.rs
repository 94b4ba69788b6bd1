//! What is left of a lease whose resource is gone.

use redislease_core::time::{Millis, Time};

use super::tenure::Tenure;
use super::{Actor, holder_of};
use crate::clock;
use crate::operator::pods::Known;

impl Actor {
    /// The resource is gone: its term is ended, its labels are taken away, and the keeper stays until the last key has
    /// ended. Returns when to look again; `None` when nothing is left.
    pub(super) async fn bury(&mut self) -> Option<Time> {
        if let Some(tenure) = &mut self.tenure {
            let view = tenure.view();
            let stopped =
                holder_of(&view).is_some_and(|holder| match self.house.pods.find(&self.namespace, &holder.pod_uid) {
                    Known::Here(sighting) => sighting.facts.stopped,
                    Known::Gone { stopped } => stopped,
                    Known::Unseen => false,
                });
            let ending = view.ending.as_ref().filter(|_| stopped).map(|ending| ending.id.clone());
            if let Some(term) = view.standing.term().map(|term| term.id.clone()).or(ending) {
                tenure.end(term, stopped);
            }
            tenure.retire();
        }
        let cleared = self.clear_roles().await;
        if let Err(error) = &cleared {
            let lease = format!("{}/{}", self.namespace, self.name);
            tracing::warn!(%lease, %error, "labels of the deleted lease are not taken away yet");
        }
        if self.tenure.as_ref().is_some_and(Tenure::has_ended) {
            self.tenure = None;
            self.house.quorums.let_go();
        }
        // The end of the keeper wakes nobody.
        match (&self.tenure, cleared.is_ok()) {
            (None, true) => None,
            (Some(_), true) => Some(clock::now() + Millis(500)),
            (_, false) => Some(clock::now() + Millis(2000)),
        }
    }
}
