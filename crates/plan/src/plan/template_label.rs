//! Pods whose controller selects them by the role label.
//!
//! If selector and template of a controller have the label, the controller releases each pod whose label the operator changes, and makes
//! another one, whose label is changed in turn. The operator cannot read every kind of controller. It sees what follows: pods of which it
//! has written the label, that no controller owns any more, beside new pods of the same template.

use std::sync::Arc;

use super::Facts;
use super::desired_role::{DesiredRole, is_written, role_of};
use crate::api::conditions::LeaseReady;
use crate::api::names::{self, PodRole};
use crate::election::PodFacts;

/// Whether the label of the pod is one of its template.
fn is_of_template(pod: &PodFacts, lease: &str) -> bool {
    role_of(pod.object(), &names::role_label(lease)).is_some() && !is_written(pod.object(), lease)
}

/// Whether a controller may have made `pod` because it released the other one. Both then have the same labels of the
/// template, except for role labels. If somebody has taken a pod from its controller, another one of these labels differs.
fn may_replace(pod: &PodFacts, released: &PodFacts) -> bool {
    let mut of_template = pod.labels.iter().filter(|(key, _)| names::lease_of_role_label(key).is_none());
    of_template.all(|(key, value)| released.labels.get(key) == Some(value))
}

/// Why no label of a template is changed, if controllers have released pods because of that.
pub(super) fn obstacle(facts: &Facts, lease: &str) -> Option<(LeaseReady, String)> {
    let electorate = facts.electorate()?;
    let released: Vec<_> = facts.pods().filter(|pod| pod.released && is_written(pod.object(), lease)).collect();
    // Some controllers give each pod a label of its own: from the second released pod on, their labels may differ.
    let are_many = released.len() > 1;
    let (replaced, released) = released.iter().find_map(|released| {
        let replaces = |pod: &&Arc<PodFacts>| {
            is_of_template(pod, lease) && !pod.released && (are_many || may_replace(pod, released))
        };
        Some((electorate.pods().find(replaces)?, released))
    })?;
    let label = names::role_label(lease);
    let message = format!(
        "Pod {} has the label {label} from its template, and pod {} belongs to no controller any more since the operator wrote this \
         label: the selector of the controller names it. Remove the label from the selector and the template, and delete the pods \
         without a controller. Until then the operator changes the label of no such pod, labels no pod active, and begins no \
         term.",
        replaced.name, released.name
    );
    Some((LeaseReady::InvalidReference, message))
}

/// Whether the write would change a label of the template.
pub(super) fn changes(pod: &PodFacts, lease: &str, desired: &DesiredRole) -> bool {
    let role = role_of(pod.object(), &names::role_label(lease));
    is_of_template(pod, lease) && role != desired.role.map(PodRole::as_str)
}
