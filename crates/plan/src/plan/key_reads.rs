//! When the keys of a lease are read, so that the status says who holds it although no attempt can tell.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use redislease_core::driver::next_phase;
use redislease_core::lease::Standing;
use redislease_core::op::Attempt;
use redislease_core::time::Time;

use super::inputs::Turn;
use super::keeper_link::KeeperLink;
use super::output::Effects;
use super::{Authority, Command};

/// The reads of the keys while no attempt can begin: at once, then one in each lease duration.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyReads {
    next: Option<Time>,
}

impl KeyReads {
    /// `can_attempt`: nothing but its time prevents an attempt. Call it after a decision to forget one: that would end a read.
    pub fn update(&mut self, turn: &Turn<'_>, link: &KeeperLink, can_attempt: bool, out: &mut Effects) {
        let &Turn { now, identity, facts, ref inputs, .. } = turn;
        // An attempt waits until the seal of the last term is effective, which another term can prevent, or until its keys end.
        let waits = !can_attempt || link.view.ending.as_ref().is_some_and(|ending| !ending.sealed);
        let votes = link.quorum.as_ref().is_some_and(|quorum| facts.quorum.up >= quorum.quorum.majority());
        let is_idle = matches!(link.view.standing, Standing::Idle) && facts.authority == Authority::Lead;
        // At the start of the process, most leases make an attempt as soon as their candidates are known.
        let is_starting = !facts.pods_listed || (facts.electorate().is_none() && inputs.obstacle.is_none());
        if !waits || !votes || !is_idle || is_starting || facts.quorum.denied {
            self.next = None;
            return;
        }
        let mut next = self.next.map_or(now, |next| next.min(now + link.config.ttl));
        if now >= next {
            out.emit(Command::ReadKeys);
            // The reads of many leases are spread over the lease duration.
            let mut hasher = DefaultHasher::new();
            identity.uid.hash(&mut hasher);
            next = next_phase(now, link.config.ttl, Attempt(hasher.finish().into()));
        }
        self.next = Some(next);
        out.wake_at(next);
    }
}
