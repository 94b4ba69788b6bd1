//! The label `active` or `standby` and the token on each candidate.
//!
//! A new term first takes the right away: every other pod is told `standby` *and the new token*, which always moves
//! its resource version, so that the late write of an operator that slept through the change conflicts. Only then is
//! the holder told `active`.

use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard, PoisonError};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use redislease_core::lease::{Standing, View};
use redislease_core::op::{Attempt, Token};
use serde_json::{Value, json};

use super::quiet::Quiet;
use super::tenure::{Tenure, recorded};
use super::{Actor, Ground};
use crate::api::RedisLease;
use crate::api::names::{self, PodRole};
use crate::clock;
use crate::election::{HolderName, PodFacts};
use crate::metrics::operator::WriteKind;
use crate::operator::kube_api::{self, CallError, call};
use crate::operator::pods::Known;

/// What a pod is to carry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wish {
    role: Option<PodRole>,
    /// Unchanged where there is no term to speak of.
    token: Option<Token>,
}

/// By what the labels are written: who may be `active`, as far as status and keeper agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Right {
    /// The UID of the pod and the token of its term; `None` while nobody may be.
    holder: Option<(String, Token)>,
    /// The latest token that the status speaks of.
    latest: Token,
}

/// So many pods of a lease are written at once.
const AT_ONCE: usize = 8;

impl Actor {
    /// Brings the labels in line. Whether it was tried.
    pub(super) async fn assign_in_turn(&mut self, lease: &Arc<RedisLease>, ground: &Ground) -> bool {
        let right = self.right(lease);
        // What was refused of an older right says nothing about this one.
        if self.right != right {
            self.roles_quiet = Quiet::default();
            self.right.clone_from(&right);
        }
        let Some(right) = right else { return false };
        if !self.roles_quiet.is_over(clock::now()) {
            return false;
        }
        let assigned = self.assign_roles(&right, ground).await;
        let pause = self.roles_quiet.note(&assigned, clock::now());
        self.warn("role of a pod", assigned, pause);
        true
    }

    /// What the labels are to say now; `None` while that is not known and they stay as they are.
    fn right(&self, lease: &RedisLease) -> Option<Right> {
        let named = recorded(lease).filter(|named| named.active).map(|named| named.attempt);
        let view = self.tenure.as_ref().map(Tenure::view);
        let has_met = |attempt| self.tenure.as_ref().is_some_and(|tenure| tenure.has_met(attempt));
        let undecided = self.doubt_stands_at().is_none_or(|stands_at| clock::now() < stands_at);
        right(view.as_ref(), named, named.is_some_and(has_met), undecided, latest(lease))
    }

    /// Brings the labels of all pods in line with `right`. One pod that cannot be written keeps no other from it.
    ///
    /// # Errors
    /// The first failure. The holder is not told `active` while the status is not in order, or while another pod may
    /// still carry it.
    async fn assign_roles(&mut self, right: &Right, ground: &Ground) -> Result<(), CallError> {
        let token = right.holder.as_ref().map(|(_, token)| *token);
        let holder = right.holder.as_ref().map(|(uid, _)| uid);
        let pods = self.house.pods.of_namespace(&self.namespace).into_iter().map(|pod| PodFacts::clone(&pod.facts));
        let (holders, others): (Vec<_>, Vec<_>) = pods.partition(|pod| Some(&pod.uid) == holder);
        // A pod that is finished is told only if it was told something before.
        let others = others.into_iter().filter(|pod| !pod.finished || self.role_of(pod).is_some()).map(|pod| {
            let known = ground.selector.is_some() || self.role_of(&pod).is_some();
            let candidate = known && !ground.deleting && ground.is_candidate(&pod);
            let wish = Wish { role: candidate.then_some(PodRole::Standby), token: token.filter(|_| candidate) };
            (pod, wish)
        });
        let others = self.changes(others);
        let active = Wish { role: Some(PodRole::Active), token };
        let holders = self.changes(holders.into_iter().map(|pod| (pod, active.clone())));
        let later = |(pod, _): &(PodFacts, Wish)| self.token_of(pod) > right.latest;
        let (doubtful, others): (Vec<_>, Vec<_>) = others.into_iter().partition(later);
        let (doubtful_holders, mut holders): (Vec<_>, Vec<_>) = holders.into_iter().partition(later);
        let mut granted = self.grant_all(&others).await;
        if !doubtful.is_empty() || !doubtful_holders.is_empty() {
            let sure = self.is_latest(right.latest).await;
            if sure.is_ok() {
                holders.extend(doubtful_holders);
                granted = and(granted, self.grant_all(&doubtful).await);
            }
            granted = and(granted, sure);
        }
        let overtaken = matches!(granted, Err(CallError::Conflict));
        let elsewhere = others.iter().chain(&doubtful).any(|(pod, _)| self.may_be_active(pod));
        // Who has not been listed yet may carry it, too.
        let all_seen = self.house.pods.listed();
        let in_order = self.status_quiet.is_calm() && !overtaken && !elsewhere && all_seen;
        let Some(token) = token.filter(|_| in_order) else {
            return granted;
        };
        for (pod, wish) in holders {
            let held = self.tenure.as_ref().is_some_and(|tenure| match tenure.view().standing {
                Standing::Held(term) => {
                    term.id.token == token && term.stop_at.is_none_or(|stop_at| clock::now() < stop_at)
                }
                _ => false,
            });
            if held {
                // Before it is sent: nobody may be left to hear the answer.
                self.unsure().insert(pod.uid.clone());
                let told = self.grant(&pod, &wish).await;
                if !matches!(told, Err(CallError::Unanswered(_))) {
                    self.unsure().remove(&pod.uid);
                }
                granted = and(granted, told);
            }
        }
        granted
    }

    /// Takes label and token from every pod: the resource is gone.
    ///
    /// # Errors
    /// The first failure. All pods are tried.
    pub(super) async fn clear_roles(&self) -> Result<(), CallError> {
        if self.house.has_successor(&self.namespace, &self.name, &self.uid) {
            return Ok(());
        }
        let pods = self.house.pods.of_namespace(&self.namespace).into_iter();
        let wishes = pods.map(|pod| (PodFacts::clone(&pod.facts), Wish { role: None, token: None }));
        self.grant_all(&self.changes(wishes)).await
    }

    fn role_of<'a>(&self, pod: &'a PodFacts) -> Option<&'a str> {
        pod.labels.get(&names::role_label(&self.name)).map(String::as_str)
    }

    fn token_of(&self, pod: &PodFacts) -> Token {
        let token = pod.annotations.get(&names::token_annotation(&self.name)).and_then(|token| token.parse().ok());
        Token(token.unwrap_or(0))
    }

    fn unsure(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.unsure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The change that grants the wish, also to a pod that seems to carry it and may have been told otherwise.
    fn change(&self, pod: &PodFacts, wish: &Wish) -> Option<Value> {
        let unsure = wish.role != Some(PodRole::Active) && self.unsure().contains(&pod.uid);
        patch(pod, &self.name, wish, unsure)
    }

    /// Whether the pod carries `active`, as it was last seen or may have been told.
    fn may_be_active(&self, pod: &PodFacts) -> bool {
        if self.unsure().contains(&pod.uid) {
            return !matches!(self.house.pods.find(&self.namespace, &pod.uid), Known::Gone { .. });
        }
        match self.house.pods.find(&self.namespace, &pod.uid) {
            Known::Here(now) => self.role_of(&now.facts) == Some(PodRole::Active.as_str()),
            Known::Unseen => self.role_of(pod) == Some(PodRole::Active.as_str()),
            Known::Gone { .. } => false,
        }
    }

    /// Pods that do not carry yet what they are to carry.
    fn changes(&self, wishes: impl Iterator<Item = (PodFacts, Wish)>) -> Vec<(PodFacts, Wish)> {
        wishes.filter(|(pod, wish)| self.change(pod, wish).is_some()).collect()
    }

    /// Asks the API server whether `token` is still the latest of this lease: a pod carries a later one. An older
    /// resource of this name may have left it there, from nodes that gave greater tokens, and it means nothing; or a
    /// later term has been here, and whoever decides must learn of it first.
    async fn is_latest(&mut self, token: Token) -> Result<(), CallError> {
        let leases: Api<RedisLease> = Api::namespaced(self.house.client.clone(), &self.namespace);
        let lease = call(leases.get(&self.name)).await?;
        if lease.uid().as_deref() != Some(&self.uid) {
            return Err(CallError::NotFound);
        }
        let now = latest(&lease);
        self.answered = Some(Arc::new(lease));
        if now == token { Ok(()) } else { Err(CallError::Conflict) }
    }

    /// Grants every wish that can be granted; the first that cannot is the error. Those who carry `active` come first.
    async fn grant_all(&self, wishes: &[(PodFacts, Wish)]) -> Result<(), CallError> {
        let mut wishes: Vec<_> = wishes.iter().collect();
        wishes.sort_by_key(|(pod, _)| self.role_of(pod) != Some(PodRole::Active.as_str()));
        let grants: Vec<_> = wishes.into_iter().map(|(pod, wish)| self.grant(pod, wish)).collect();
        let granted: Vec<_> = stream::iter(grants).buffered(AT_ONCE).collect().await;
        granted.into_iter().fold(Ok(()), and)
    }

    /// Writes the wish to the pod as it was read. What conflicts is decided anew: a right may have passed on meanwhile.
    async fn grant(&self, pod: &PodFacts, wish: &Wish) -> Result<(), CallError> {
        let Some(patch) = self.change(pod, wish) else { return Ok(()) };
        let asked = self.house.pods.ask();
        match self.house.write_roles(pod, &patch).await {
            Err(error @ (CallError::Conflict | CallError::NotFound)) => {
                match self.house.pod(&self.namespace, &pod.name).await {
                    Ok(now) if now.uid == pod.uid => {
                        // An admission webhook may refuse with any code.
                        if now.resource_version == pod.resource_version {
                            let why = format!("pod {} is as it was, and its change is answered: {error}", pod.name);
                            return Err(CallError::Refused(why));
                        }
                        self.unsure().remove(&pod.uid);
                        self.house.pods.answered(asked, now, clock::now());
                    }
                    Ok(_) | Err(CallError::NotFound) => {
                        self.house.pods.missed(&self.namespace, &pod.uid);
                        return Ok(());
                    }
                    Err(_) => {}
                }
                Err(CallError::Conflict)
            }
            Ok(()) => {
                self.unsure().remove(&pod.uid);
                Ok(())
            }
            done => done,
        }
    }
}

/// Who may be `active` by the keeper's view and by the term that the status calls active; `None` while that is not
/// known. `met` says whether the keeper knows that term, `undecided` whether a doubt may still be answered.
fn right(view: Option<&View>, named: Option<Attempt>, met: bool, undecided: bool, latest: Token) -> Option<Right> {
    let nobody = Right { holder: None, latest };
    // A term that status names is not over because no keeper could be opened for it.
    let Some(view) = view else { return named.is_none().then_some(nobody) };
    let running = view.standing.term().map(|term| term.id.attempt);
    // The status says active, and this process has not found out otherwise yet.
    if named.is_some() && named != running && !met {
        return None;
    }
    match &view.standing {
        Standing::Adopting(_) => None,
        // The label follows a doubt that nobody answers.
        Standing::Uncertain(_) if undecided => None,
        Standing::Held(term) if named == running => {
            let name: Option<HolderName> = term.id.holder.0.parse().ok();
            Some(Right { holder: name.map(|name| (name.pod_uid, term.id.token)), latest })
        }
        _ => Some(nobody),
    }
}

/// The first failure; but a conflict, which may hide that a right has passed on, before any other.
fn and(all: Result<(), CallError>, next: Result<(), CallError>) -> Result<(), CallError> {
    match (all, next) {
        (Ok(()), next) => next,
        (Err(_), Err(CallError::Conflict)) => Err(CallError::Conflict),
        (all, _) => all,
    }
}

/// The latest token that the status speaks of; 0 when there was no term.
fn latest(lease: &RedisLease) -> Token {
    let token = lease.status.as_ref().and_then(|status| status.fencing_token);
    Token(token.and_then(|token| u64::try_from(token).ok()).unwrap_or(0))
}

impl super::House {
    /// Writes label and token of one pod, if it is still as it was read.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn write_roles(&self, pod: &PodFacts, patch: &Value) -> Result<(), CallError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let asked = self.pods.ask();
        let written = call(pods.patch(&pod.name, &PatchParams::default(), &Patch::Merge(patch))).await;
        self.metrics.wrote(WriteKind::PodRole, kube_api::result(&written));
        let written = written?;
        if written.uid().as_deref() == Some(&pod.uid) {
            self.pods.answered(asked, PodFacts::from(&written), clock::now());
        }
        Ok(())
    }
}

/// The change that grants the wish; `None` when the pod carries it already, unless that is `unsure`.
fn patch(pod: &PodFacts, lease: &str, wish: &Wish, unsure: bool) -> Option<Value> {
    let (label, annotation) = (names::role_label(lease), names::token_annotation(lease));
    let role = wish.role.map(PodRole::as_str);
    let is_role = pod.labels.get(&label).map(String::as_str);
    let is_token = pod.annotations.get(&annotation).cloned();
    let token = match wish.role {
        Some(_) => wish.token.map(|token| token.to_string()).or_else(|| is_token.clone()),
        None => None,
    };
    if is_role == role && is_token == token && !unsure {
        return None;
    }
    Some(removal_or(pod, &label, role, &annotation, token.as_deref()))
}

/// A merge patch that sets or removes one label and one annotation of the pod in the version that was read.
pub(in crate::operator) fn removal_or(
    pod: &PodFacts,
    label: &str,
    role: Option<&str>,
    annotation: &str,
    token: Option<&str>,
) -> Value {
    json!({"metadata": {
        "uid": pod.uid,
        "resourceVersion": pod.resource_version,
        "labels": {label: role},
        "annotations": {annotation: token},
    }})
}

#[cfg(test)]
mod tests {
    use redislease_core::lease::{TermId, TermView};
    use redislease_core::op::Holder;

    use super::*;

    fn pod(role: Option<&str>, token: Option<&str>) -> PodFacts {
        let label = role.map(|role| ("lease.redislease.io/billing".to_owned(), role.to_owned()));
        let annotation = token.map(|token| ("token.redislease.io/billing".to_owned(), token.to_owned()));
        PodFacts {
            resource_version: Some("7".into()),
            labels: label.into_iter().collect(),
            annotations: annotation.into_iter().collect(),
            ..PodFacts::running("billing-0")
        }
    }

    fn change(pod: &PodFacts, role: Option<PodRole>, token: Option<&str>) -> Option<(Value, Value)> {
        let wish = Wish { role, token: token.map(|token| Token(token.parse().unwrap())) };
        let patch = patch(pod, "billing", &wish, false)?;
        assert_eq!(patch["metadata"]["resourceVersion"], "7", "every write names the version that was read");
        let role = patch["metadata"]["labels"]["lease.redislease.io/billing"].clone();
        Some((role, patch["metadata"]["annotations"]["token.redislease.io/billing"].clone()))
    }

    #[test]
    fn who_may_be_active() {
        let id = TermId { attempt: Attempt(7), token: Token(42), holder: Holder("c/c-uid/n/billing/a/uid-a".into()) };
        let term = || TermView { id: id.clone(), valid_until: None, stop_at: None, failed_rounds: 0 };
        let of = |standing| View { standing, ..View::default() };
        let (ours, other) = (Some(Attempt(7)), Some(Attempt(8)));
        let (unknown, nobody, pod) = (None, Some(None), Some(Some(("uid-a".to_owned(), Token(42)))));
        let who = |view: Option<View>, named, met, undecided| {
            right(view.as_ref(), named, met, undecided, Token(42)).map(|right| right.holder)
        };
        let table = [
            (None, None, false, &nobody, "no keeper, and no term that the status names"),
            (None, ours, false, &unknown, "no keeper for the term that the status names"),
            (Some(Standing::Held(term())), ours, true, &pod, "held and named"),
            (Some(Standing::Held(term())), None, false, &nobody, "held, and not in the status yet"),
            (Some(Standing::Held(term())), other, false, &unknown, "the status names a term that is not known"),
            (Some(Standing::Publishing(term())), None, false, &nobody, "not told yet"),
            (Some(Standing::Idle), ours, true, &nobody, "lost, and the status does not say so yet"),
            (Some(Standing::Idle), ours, false, &unknown, "to be adopted"),
            (Some(Standing::Adopting(term())), ours, true, &unknown, "being adopted"),
        ];
        for (standing, named, met, expected, what) in table {
            assert_eq!(who(standing.map(of), named, met, true), *expected, "{what}");
        }
        let doubted = || Some(of(Standing::Uncertain(term())));
        assert_eq!(who(doubted(), ours, true, true), unknown);
        assert_eq!(who(doubted(), ours, true, false), nobody, "a doubt that nobody answered");
    }

    #[test]
    fn a_conflict_is_told_before_any_other_failure() {
        let refused = |why: &str| Err(CallError::Refused(why.into()));
        let text = |all: Result<(), CallError>| all.map_err(|error| error.to_string());
        assert_eq!(text(and(Ok(()), Ok(()))), Ok(()));
        assert_eq!(text(and(refused("a"), Ok(()))), text(refused("a")));
        assert_eq!(text(and(refused("a"), refused("b"))), text(refused("a")));
        assert_eq!(text(and(refused("a"), Err(CallError::Conflict))), text(Err(CallError::Conflict)));
        assert_eq!(text(and(Err(CallError::Conflict), refused("b"))), text(Err(CallError::Conflict)));
    }

    #[test]
    fn what_changes_on_a_pod() {
        let (active, standby) = (Some(PodRole::Active), Some(PodRole::Standby));
        assert_eq!(change(&pod(None, None), active, Some("9")), Some((json!("active"), json!("9"))));
        assert_eq!(change(&pod(Some("active"), Some("9")), active, Some("9")), None);
        assert_eq!(change(&pod(Some("standby"), Some("8")), standby, Some("9")), Some((json!("standby"), json!("9"))));
        assert_eq!(change(&pod(Some("active"), Some("9")), standby, None), Some((json!("standby"), json!("9"))));
        assert_eq!(change(&pod(Some("standby"), Some("9")), standby, None), None);
        assert_eq!(change(&pod(Some("standby"), Some("9")), None, None), Some((json!(null), json!(null))));
        assert_eq!(change(&pod(None, None), None, None), None);
    }
}
