//! The label `active` or `standby` and the token on each candidate.
//!
//! A new term first takes the right away: every other pod is told `standby` *and the new token*, which always moves
//! its resource version, so that the late write of an operator that slept through the change conflicts. Only then is
//! the holder told `active`.

use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use redislease_core::lease::Standing;
use redislease_core::op::Token;
use serde_json::{Value, json};

use super::tenure::recorded;
use super::{Actor, Ground};
use crate::api::RedisLease;
use crate::api::names::{self, PodRole};
use crate::clock;
use crate::metrics::operator::WriteKind;
use crate::operator::kube_api::{self, CallError, call};
use crate::plan::{HolderName, PodFacts};
use k8s_openapi::api::core::v1::Pod;

/// What a pod is to carry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wish {
    role: Option<PodRole>,
    /// Unchanged where there is no term to speak of.
    token: Option<Token>,
}

impl Actor {
    /// Brings the labels of all pods in line with what is held now.
    ///
    /// # Errors
    /// When a pod was not written: the holder is not told `active` before all others know better.
    pub(super) async fn assign_roles(&self, lease: &RedisLease, ground: &Ground) -> Result<(), CallError> {
        let Some(tenure) = &self.tenure else { return Ok(()) };
        let view = tenure.view();
        let named = recorded(lease).filter(|named| named.active).map(|named| named.term.attempt);
        let running = view.standing.term().map(|term| term.id.attempt);
        // The status says active, and this process has not found out otherwise yet.
        let unknown = named.is_some_and(|named| Some(named) != running && !tenure.has_met(named));
        if unknown || matches!(view.standing, Standing::Adopting(_)) {
            return Ok(());
        }
        // The label follows a doubt that nobody answers.
        let undecided = || self.doubt_stands_at().is_none_or(|stands_at| clock::now() < stands_at);
        if matches!(view.standing, Standing::Uncertain(_)) && undecided() {
            return Ok(());
        }
        let (holder, token, until) = match &view.standing {
            Standing::Held(term) if named == running => {
                let name: Option<HolderName> = term.id.holder.0.parse().ok();
                (name.map(|name| name.pod_uid), Some(term.id.token), term.stop_at)
            }
            _ => (None, None, None),
        };
        let pods = self.house.pods.of_namespace(&self.namespace);
        let (holders, others): (Vec<_>, Vec<_>) =
            pods.into_iter().map(|pod| pod.facts).partition(|pod| Some(&pod.uid) == holder.as_ref());
        // A pod that is finished is told only if it was told something before.
        for pod in others.iter().filter(|pod| !pod.finished || self.role_of(pod).is_some()) {
            let known = ground.selector.is_some() || self.role_of(pod).is_some();
            let candidate = known && !ground.deleting && ground.is_candidate(pod);
            let wish = Wish { role: candidate.then_some(PodRole::Standby), token: token.filter(|_| candidate) };
            self.grant(pod, &wish).await?;
        }
        for pod in holders {
            let still = self.tenure.as_ref().is_some_and(
                |tenure| matches!(&tenure.view().standing, Standing::Held(term) if Some(term.id.token) == token),
            );
            if still && until.is_none_or(|until| clock::now() < until) {
                self.grant(&pod, &Wish { role: Some(PodRole::Active), token }).await?;
            }
        }
        Ok(())
    }

    /// Takes label and token from every pod: the resource is gone.
    ///
    /// # Errors
    /// When a pod was not written.
    pub(super) async fn clear_roles(&self) -> Result<(), CallError> {
        if self.house.has_successor(&self.namespace, &self.name, &self.uid) {
            return Ok(());
        }
        for pod in self.house.pods.of_namespace(&self.namespace) {
            self.grant(&pod.facts, &Wish { role: None, token: None }).await?;
        }
        Ok(())
    }

    fn role_of<'a>(&self, pod: &'a PodFacts) -> Option<&'a str> {
        pod.labels.get(&names::role_label(&self.name)).map(String::as_str)
    }

    /// Writes the wish to the pod as it was read. What conflicts is decided anew: a right may have passed on meanwhile.
    async fn grant(&self, pod: &PodFacts, wish: &Wish) -> Result<(), CallError> {
        let token = pod.annotations.get(&names::token_annotation(&self.name)).and_then(|token| token.parse().ok());
        if let (Some(own), Some(other)) = (wish.token, token.map(Token))
            && other > own
        {
            // A later term has been here: whoever decides must learn of it first.
            return Err(CallError::Refused(format!("pod {} carries the token {other} of a later term", pod.name)));
        }
        let Some(patch) = patch(pod, &self.name, wish) else { return Ok(()) };
        match self.house.write_roles(pod, &patch).await {
            Err(CallError::Conflict) => {
                match self.house.pod(&self.namespace, &pod.name).await {
                    Ok(now) if now.uid == pod.uid => self.house.pods.seen(now, clock::now()),
                    Ok(_) | Err(CallError::NotFound) => self.house.pods.missed(&self.namespace, &pod.uid),
                    Err(error) => return Err(error),
                }
                Err(CallError::Conflict)
            }
            Err(CallError::NotFound) => {
                self.house.pods.missed(&self.namespace, &pod.uid);
                Ok(())
            }
            done => done,
        }
    }
}

impl super::House {
    /// Writes label and token of one pod, if it is still as it was read.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn write_roles(&self, pod: &PodFacts, patch: &Value) -> Result<(), CallError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let written = call(pods.patch(&pod.name, &PatchParams::default(), &Patch::Merge(patch))).await;
        self.metrics.wrote(WriteKind::PodRole, kube_api::result(&written));
        let written = written?;
        if written.uid().as_deref() == Some(&pod.uid) {
            self.pods.seen(PodFacts::from(&written), clock::now());
        }
        Ok(())
    }
}

/// The change that grants the wish; `None` when the pod carries it already.
fn patch(pod: &PodFacts, lease: &str, wish: &Wish) -> Option<Value> {
    let (label, annotation) = (names::role_label(lease), names::token_annotation(lease));
    let role = wish.role.map(PodRole::as_str);
    let is_role = pod.labels.get(&label).map(String::as_str);
    let is_token = pod.annotations.get(&annotation).cloned();
    let token = match wish.role {
        Some(_) => wish.token.map(|token| token.to_string()).or_else(|| is_token.clone()),
        None => None,
    };
    if is_role == role && is_token == token {
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
        let patch = patch(pod, "billing", &Wish { role, token: token.map(|token| Token(token.parse().unwrap())) })?;
        assert_eq!(patch["metadata"]["resourceVersion"], "7", "every write names the version that was read");
        let role = patch["metadata"]["labels"]["lease.redislease.io/billing"].clone();
        Some((role, patch["metadata"]["annotations"]["token.redislease.io/billing"].clone()))
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
