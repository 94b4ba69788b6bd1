//! The desired label and token of a pod or workload.

use redislease_core::op::Token;

use super::effect::PodChange;
use crate::api::names::{self, PodRole};
use crate::election::{Object, Run};

/// The desired label and token of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DesiredRole {
    pub role: Option<PodRole>,
    /// `None` leaves the token unchanged.
    pub token: Option<Token>,
    pub change: PodChange,
    /// How a workload is to run; `None` leaves it as it is.
    pub run: Option<Run>,
    /// Only an answer is desired: whether the API server would store this.
    pub dry_run: bool,
}

impl DesiredRole {
    /// No role and no token.
    pub const NONE: Self = Self { role: None, token: None, change: PodChange::None, run: None, dry_run: false };

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

    /// The same as a dry run.
    pub const fn tested(self) -> Self {
        Self { dry_run: true, ..self }
    }

    pub fn is_deletion(&self) -> bool {
        self.change == PodChange::Delete && !self.dry_run
    }

    /// The pod is deleted.
    pub const DELETED: Self = Self { change: PodChange::Delete, ..Self::NONE };
}

pub(super) fn role_of<'a>(pod: Object<'a>, label: &str) -> Option<&'a str> {
    pod.labels.get(label).map(String::as_str)
}

/// Whether the operator has written this pod for the lease: it writes no label without a token. A label alone is one of the pod template:
/// if the selector of the workload names it too, a pod without it is replaced.
pub fn is_written(pod: Object<'_>, lease: &str) -> bool {
    pod.annotations.get(&names::token_annotation(lease)).is_some()
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
    use crate::election::PodFacts;

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
