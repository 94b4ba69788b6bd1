//! The desired label and token of each pod, from the entitlement.

use std::sync::Arc;

use redislease_core::op::Token;

use super::activation::Activator;
use super::effect::PodChange;
use super::entitlement::Entitlement;
use super::facts::{Facts, PodKnowledge};
use super::inputs::Inputs;
use crate::api::names::{self, PodRole};
use crate::election::{Object, PodFacts, Run};

/// The desired label and token of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DesiredRole {
    pub role: Option<PodRole>,
    /// `None` leaves the token unchanged.
    pub token: Option<Token>,
    pub change: PodChange,
    /// How a workload is to run; `None` leaves it as it is.
    pub run: Option<Run>,
}

impl DesiredRole {
    /// No role and no token.
    pub const NONE: Self = Self { role: None, token: None, change: PodChange::None, run: None };

    /// The label `standby` with this token, or with any.
    pub const fn standby(token: Option<Token>) -> Self {
        Self { role: Some(PodRole::Standby), token, ..Self::NONE }
    }

    /// What the guard compares. A workload that runs as it is to run needs no change, and wants the same as before. A fence wants the
    /// same whatever its number is.
    pub fn guarded(&self) -> Self {
        let change = match self.change {
            PodChange::Run(_) => PodChange::None,
            PodChange::Fence(_) => PodChange::Fence(0),
            change => change,
        };
        Self { change, ..self.clone() }
    }

    /// The pod is deleted.
    pub const DELETED: Self = Self { change: PodChange::Delete, ..Self::NONE };
}

/// The desired role of each pod. Finished pods are written only if they carry a role or token.
pub(super) fn desired_roles(
    lease: &str,
    entitlement: &Entitlement,
    inputs: &Inputs,
    facts: &Facts,
    activator: &Activator,
) -> Vec<(Arc<PodFacts>, DesiredRole)> {
    let label = names::role_label(lease);
    // A started pod is deleted when it carries the token of the latest term, also after that term has ended.
    let held = entitlement.holder.as_ref().map(|(_, token)| *token);
    let token = if activator.starts_pods() { entitlement.newest_token() } else { held };
    let holder = entitlement.holder.as_ref().map(|(uid, _)| uid);
    let desired = |pod: &PodFacts, role| activator.desired(pod, role, token);
    let mut desired_roles = Vec::new();
    let mut add = |pod: &Arc<PodFacts>, candidate: bool| {
        // A pod that was started keeps its label until it has stopped: without it, the pod would not be found again, and the
        // next one would not wait for it.
        let desired = if Some(&pod.uid) == holder {
            desired(pod, PodRole::Active)
        } else if pod.finished && role_of(pod.object(), &label).is_none() {
            return;
        } else if (candidate || activator.may_run(pod)) && !inputs.deleting {
            desired(pod, PodRole::Standby)
        } else {
            DesiredRole::NONE
        };
        desired_roles.push((pod.clone(), desired));
    };
    match &inputs.electorate {
        Some(electorate) => {
            electorate.pods().for_each(|pod| add(pod, true));
            facts.strays.iter().for_each(|pod| add(pod, false));
        }
        // While the candidates are unknown, every pod with a role counts as a candidate.
        None => facts.strays.iter().for_each(|pod| add(pod, true)),
    }
    if let PodKnowledge::Here(sighting) = &facts.holder
        && Some(&sighting.facts.uid) == holder
        && !desired_roles.iter().any(|(pod, _)| pod.uid == sighting.facts.uid)
    {
        desired_roles.push((sighting.facts.clone(), desired(&sighting.facts, PodRole::Active)));
    }
    desired_roles
}

pub(super) fn role_of<'a>(pod: Object<'a>, label: &str) -> Option<&'a str> {
    pod.labels.get(label).map(String::as_str)
}

/// Whether the pod or workload, as last observed, has the desired role.
pub(super) fn carries(pod: Object<'_>, lease: &str, desired: &DesiredRole) -> bool {
    let token = pod.annotations.get(&names::token_annotation(lease));
    let same_role = role_of(pod, &names::role_label(lease)) == desired.role.map(PodRole::as_str);
    let same_token = match (desired.role, desired.token) {
        (None, _) => token.is_none(),
        (Some(_), None) => true,
        (Some(_), Some(wished)) => token.is_some_and(|token| *token == wished.to_string()),
    };
    same_role && same_token
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_and_token_of_a_pod() {
        let pod = |role: Option<&str>, token: Option<&str>| {
            let text = |(key, value): (String, &str)| (key, value.to_owned());
            PodFacts {
                labels: role.map(|role| text((names::role_label("l"), role))).into_iter().collect(),
                annotations: token.map(|token| text((names::token_annotation("l"), token))).into_iter().collect(),
                ..PodFacts::running("a")
            }
        };
        let desired = |role, token: Option<u64>| DesiredRole { role, token: token.map(Token), ..DesiredRole::NONE };
        let (active, standby) = (Some(PodRole::Active), Some(PodRole::Standby));
        for (role, token, wished, expected) in [
            (None, None, desired(active, Some(9)), false),
            (Some("active"), Some("9"), desired(active, Some(9)), true),
            (Some("active"), Some("8"), desired(active, Some(9)), false),
            (Some("standby"), Some("8"), desired(standby, Some(9)), false),
            (Some("active"), Some("9"), desired(standby, None), false),
            (Some("standby"), Some("9"), desired(standby, None), true),
            (Some("standby"), Some("9"), desired(None, None), false),
            (None, Some("9"), desired(None, None), false),
            (None, None, desired(None, None), true),
        ] {
            assert_eq!(carries(pod(role, token).object(), "l", &wished), expected, "{role:?} {token:?} {wished:?}");
        }
    }
}
