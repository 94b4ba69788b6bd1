//! The label `active` or `standby` and the token on each candidate.
//!
//! A new term first takes the right away: every other pod gets `standby` *and the new token*, which always moves its
//! resource version, so the late write of a process that slept through the change conflicts. Only then does the holder get
//! `active`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redislease_core::lease::{Standing, View};
use redislease_core::op::{Attempt, Token};
use redislease_core::time::Time;

use super::effect::{Effect, Priority, Read, RoleWrite};
use super::event::RoleOutcome;
use super::facts::{Facts, PodKnowledge};
use super::inputs::Inputs;
use super::recorded::{Recorded, latest_token};
use super::{Reconciler, Shared};
use crate::api::names::{self, PodRole};
use crate::election::{Electorate, HolderName, PodFacts};

/// How many pods of one lease are written at a time.
const AT_ONCE: usize = 8;

/// What is remembered of the pods' roles.
#[derive(Clone, Debug, Default)]
pub(super) struct RoleState {
    /// Writes without an outcome, by the pod's UID.
    writing: BTreeMap<String, Writing>,
    /// Pods that may carry `active`, whatever was last seen: a write to them was not answered.
    may_be_active: BTreeSet<String>,
    /// By which right the labels are written.
    right: Option<Right>,
    /// The latest token, as a read has shown it since the right changed.
    verified: Option<Token>,
    verifying: bool,
    /// The term that the status calls unconfirmed, and since when.
    unconfirmed: Option<(Attempt, Time)>,
    /// The candidates that carry what they should, by this right.
    in_order: Option<(Arc<Electorate>, Right)>,
}

#[derive(Clone, Debug)]
struct Writing {
    wish: Wish,
    withdrawn: bool,
}

/// What a pod should carry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wish {
    role: Option<PodRole>,
    /// Unchanged when there is none.
    token: Option<Token>,
}

/// Who may be `active`, as far as the status and the keeper agree.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Right {
    /// The UID of the pod and the token of its term; `None` while no pod may be.
    holder: Option<(String, Token)>,
    /// The latest token that the status shows.
    latest: Token,
}

impl RoleState {
    pub fn is_writing(&self) -> bool {
        !self.writing.is_empty()
    }

    pub fn being_written(&self) -> Vec<String> {
        self.writing.keys().cloned().collect()
    }

    pub const fn set_unconfirmed(&mut self, unconfirmed: Option<(Attempt, Time)>) {
        self.unconfirmed = unconfirmed;
    }

    /// Since when the status calls this term unconfirmed.
    pub fn unconfirmed_since(&self, attempt: Attempt) -> Option<Time> {
        self.unconfirmed.filter(|(unconfirmed, _)| *unconfirmed == attempt).map(|(_, since)| since)
    }

    pub fn written(&mut self, uid: &str, outcome: &RoleOutcome) {
        self.writing.remove(uid);
        self.in_order = None;
        if !matches!(outcome, RoleOutcome::Unanswered(_)) {
            self.may_be_active.remove(uid);
        }
    }

    pub const fn lease_read(&mut self, latest: Token) {
        if self.verifying {
            self.verified = Some(latest);
        }
        self.verifying = false;
    }

    pub const fn read_failed(&mut self) {
        self.verifying = false;
    }

    /// Drops what is remembered; writes that are under way are still answered.
    pub fn forget(&mut self) {
        let writing = std::mem::take(&mut self.writing);
        *self = Self { writing, ..Self::default() };
    }
}

impl Reconciler {
    /// Brings the labels of all pods in line with who may be `active`.
    pub(super) fn assign_roles(&mut self, now: Time, lease: &Shared, inputs: &Inputs, facts: &Facts) {
        let undecided = self.label_grace_deadline().filter(|deadline| now < *deadline);
        if let Some(deadline) = undecided {
            self.wake_at(deadline);
        }
        let right = self.right(lease, undecided.is_some() || self.is_newly_unconfirmed());
        if self.roles.right != right {
            self.roles.right.clone_from(&right);
            self.roles.verified = None;
        }
        let Some(right) = right else { return };
        if self.is_in_order(&right, inputs, facts) {
            return;
        }
        let wishes = wishes(&self.identity.name, &right, inputs, facts);
        let wishes = wishes.into_iter().filter_map(|(pod, wish)| self.needed(&pod, &wish).then_some((pod, wish)));
        let (grants, others): (Vec<_>, Vec<_>) = wishes.partition(|(_, wish)| wish.role == Some(PodRole::Active));
        if let Some(electorate) = &inputs.electorate
            && grants.is_empty()
            && others.is_empty()
            && !self.roles.is_writing()
        {
            self.roles.in_order = Some((electorate.clone(), right.clone()));
            return;
        }
        let elsewhere = others.iter().any(|(pod, _)| self.may_be_active(pod));
        let (first, then): (Vec<_>, Vec<_>) = others.into_iter().partition(|(pod, _)| self.may_be_active(pod));
        // During an attempt the others wait: if it succeeds, one write says role and token.
        let then = if self.is_contending() { Vec::new() } else { then };
        for (pod, wish) in first.into_iter().chain(then) {
            if self.is_later_than(&right, &pod) {
                self.verify_latest();
                continue;
            }
            let priority = if self.may_be_active(&pod) { Priority::Active } else { Priority::Standby };
            self.write_role(&pod, wish, priority, None);
        }
        // Pods that were not listed yet may carry `active`, too.
        let may_grant = facts.pods_listed && !elsewhere && self.status.is_known() && self.grants_in_flight(&right);
        for (pod, wish) in grants {
            if self.is_later_than(&right, &pod) {
                self.verify_latest();
            } else if may_grant && self.holds(&right) && facts.stop_at.is_none_or(|stop_at| now < stop_at) {
                self.write_role(&pod, wish, Priority::Active, facts.stop_at);
            }
        }
    }

    /// Removes label and token from every pod: the resource is gone.
    pub(super) fn clear_roles(&mut self, facts: &Facts) {
        if facts.has_successor {
            for uid in self.roles.being_written() {
                self.withdraw_role(&uid);
            }
            return;
        }
        let wish = Wish { role: None, token: None };
        for pod in &facts.strays {
            if self.needed(pod, &wish) {
                self.write_role(pod, wish.clone(), Priority::Active, None);
            }
        }
    }

    /// Whether the labels are as they should be and nothing has changed since.
    fn is_in_order(&self, right: &Right, inputs: &Inputs, facts: &Facts) -> bool {
        let same = |(electorate, by): &(Arc<Electorate>, Right)| {
            by == right && inputs.electorate.as_ref().is_some_and(|now| Arc::ptr_eq(now, electorate))
        };
        facts.strays.is_empty() && !inputs.deleting && self.roles.in_order.as_ref().is_some_and(same)
    }

    /// The status does not call an unconfirmed term so yet.
    fn is_newly_unconfirmed(&self) -> bool {
        let Some(link) = &self.link else { return false };
        match &link.view.standing {
            Standing::Uncertain(term) => self.roles.unconfirmed_since(term.id.attempt).is_none(),
            _ => false,
        }
    }

    /// What the labels should say; `None` while that is not known and they stay as they are.
    fn right(&self, lease: &Shared, undecided: bool) -> Option<Right> {
        let recorded = Recorded::of(lease).filter(|recorded| recorded.active).map(|recorded| recorded.attempt);
        let view = self.link.as_ref().map(|link| &link.view);
        let known = |attempt| self.link.as_ref().is_some_and(|link| link.knows(attempt));
        right(view, recorded, recorded.is_some_and(known), undecided, latest_token(lease))
    }

    /// Whether this process holds the term of the right.
    fn holds(&self, right: &Right) -> bool {
        let token = right.holder.as_ref().map(|(_, token)| *token);
        match self.link.as_ref().map(|link| &link.view.standing) {
            Some(Standing::Held(term)) => Some(term.id.token) == token,
            _ => false,
        }
    }

    /// Whether no other pod is being told `active` now.
    fn grants_in_flight(&self, right: &Right) -> bool {
        let holder = right.holder.as_ref().map(|(uid, _)| uid);
        self.roles
            .writing
            .iter()
            .all(|(uid, writing)| writing.wish.role != Some(PodRole::Active) || Some(uid) == holder)
    }

    /// Whether the pod may carry `active`: it was seen with it, or a write to it has no answer.
    fn may_be_active(&self, pod: &PodFacts) -> bool {
        let writing = self.roles.writing.get(&pod.uid).is_some_and(|one| one.wish.role == Some(PodRole::Active));
        writing
            || self.roles.may_be_active.contains(&pod.uid)
            || role_of(pod, &names::role_label(&self.identity.name)) == Some(PodRole::Active.as_str())
    }

    /// Whether the pod must be written to carry the wish.
    fn needed(&self, pod: &PodFacts, wish: &Wish) -> bool {
        let unsure = wish.role != Some(PodRole::Active) && self.may_be_active(pod);
        unsure || !carries(pod, &self.identity.name, wish)
    }

    /// The pod carries a later token than the status shows: an older resource of this name may have left it there, and it
    /// means nothing; or a later term exists, and this process must learn of it first.
    fn is_later_than(&self, right: &Right, pod: &PodFacts) -> bool {
        let token = pod.annotations.get(&names::token_annotation(&self.identity.name));
        let later = token.and_then(|token| token.parse().ok()).is_some_and(|token: u64| token > right.latest.0);
        later && self.roles.verified != Some(right.latest)
    }

    fn verify_latest(&mut self) {
        if !std::mem::replace(&mut self.roles.verifying, true) {
            self.emit(Effect::Read(Read::Lease));
        }
    }

    fn write_role(&mut self, pod: &PodFacts, wish: Wish, priority: Priority, not_after: Option<Time>) {
        if let Some(writing) = self.roles.writing.get(&pod.uid) {
            if writing.wish != wish {
                self.withdraw_role(&pod.uid.clone());
            }
            return;
        }
        if self.roles.writing.len() >= AT_ONCE && wish.role != Some(PodRole::Active) {
            return;
        }
        let annotation = names::token_annotation(&self.identity.name);
        let token = wish.role.and_then(|_| {
            wish.token.map(|token| token.to_string()).or_else(|| pod.annotations.get(&annotation).cloned())
        });
        if wish.role == Some(PodRole::Active) {
            // From now on, until it is answered: nobody may be left to hear the answer.
            self.roles.may_be_active.insert(pod.uid.clone());
        }
        let write = RoleWrite {
            priority,
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            version: pod.resource_version.clone(),
            role: wish.role,
            token,
            not_after,
        };
        self.roles.in_order = None;
        self.roles.writing.insert(pod.uid.clone(), Writing { wish, withdrawn: false });
        self.emit(Effect::WriteRole(write));
    }

    fn withdraw_role(&mut self, uid: &str) {
        if let Some(writing) = self.roles.writing.get_mut(uid)
            && !std::mem::replace(&mut writing.withdrawn, true)
        {
            self.emit(Effect::WithdrawRole { uid: uid.to_owned() });
        }
    }
}

/// What each pod should carry. Pods that have finished are written only if they carry something.
fn wishes(lease: &str, right: &Right, inputs: &Inputs, facts: &Facts) -> Vec<(Arc<PodFacts>, Wish)> {
    let label = names::role_label(lease);
    let token = right.holder.as_ref().map(|(_, token)| *token);
    let holder = right.holder.as_ref().map(|(uid, _)| uid);
    let mut wishes = Vec::new();
    let mut add = |pod: &Arc<PodFacts>, candidate: bool| {
        let wish = if Some(&pod.uid) == holder {
            Wish { role: Some(PodRole::Active), token }
        } else if pod.finished && role_of(pod, &label).is_none() {
            return;
        } else if candidate && !inputs.deleting {
            Wish { role: Some(PodRole::Standby), token }
        } else {
            Wish { role: None, token: None }
        };
        wishes.push((pod.clone(), wish));
    };
    match &inputs.electorate {
        Some(electorate) => {
            electorate.pods().for_each(|pod| add(pod, true));
            facts.strays.iter().for_each(|pod| add(pod, false));
        }
        // While the candidates are not known, none of those that carry a role stops to be one.
        None => facts.strays.iter().for_each(|pod| add(pod, true)),
    }
    if let PodKnowledge::Here(sighting) = &facts.holder
        && Some(&sighting.facts.uid) == holder
        && !wishes.iter().any(|(pod, _)| pod.uid == sighting.facts.uid)
    {
        wishes.push((sighting.facts.clone(), Wish { role: Some(PodRole::Active), token }));
    }
    wishes
}

fn role_of<'a>(pod: &'a PodFacts, label: &str) -> Option<&'a str> {
    pod.labels.get(label).map(String::as_str)
}

/// Whether the pod carries the wish, as it was last seen.
fn carries(pod: &PodFacts, lease: &str, wish: &Wish) -> bool {
    let token = pod.annotations.get(&names::token_annotation(lease));
    let same_role = role_of(pod, &names::role_label(lease)) == wish.role.map(PodRole::as_str);
    let same_token = match (wish.role, wish.token) {
        (None, _) => token.is_none(),
        (Some(_), None) => true,
        (Some(_), Some(wished)) => token.is_some_and(|token| *token == wished.to_string()),
    };
    same_role && same_token
}

/// Who may be `active` by the keeper's view and by the term that the status calls active; `None` while that is not known.
/// `known` says whether the keeper knows that term, `undecided` whether another replica may still confirm it.
fn right(view: Option<&View>, recorded: Option<Attempt>, known: bool, undecided: bool, latest: Token) -> Option<Right> {
    let nobody = Right { holder: None, latest };
    // A term that the status names is not over because no keeper could be opened for it.
    let Some(view) = view else { return recorded.is_none().then_some(nobody) };
    let running = view.standing.term().map(|term| term.id.attempt);
    // The status says active, and this process has not found out otherwise yet.
    if recorded.is_some() && recorded != running && !known {
        return None;
    }
    match &view.standing {
        Standing::Adopting(_) => None,
        Standing::Uncertain(_) if undecided => None,
        Standing::Held(term) if recorded == running => {
            let name: Option<HolderName> = term.id.holder.0.parse().ok();
            Some(Right { holder: name.map(|name| (name.pod_uid, term.id.token)), latest })
        }
        _ => Some(nobody),
    }
}

#[cfg(test)]
#[path = "roles_tests.rs"]
mod tests;
