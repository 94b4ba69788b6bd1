//! A write that the API server accepted and stored with other values: an admission webhook or a mutating policy changed it.

use std::fmt;

use super::Priority;
use super::effect::{PodChange, RoleWrite};
use crate::api::names::{self, PodRole};
use crate::election::{Object, Run};

/// A field with another value than was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Altered {
    /// The path of the field. A key of a label or annotation is one part.
    pub path: Vec<String>,
    /// The value that was asked for; `None` if the field was to be removed.
    pub wanted: Option<String>,
    /// The value in the answer of the API server.
    pub stored: Option<String>,
    /// The manager that `managedFields` names for the field.
    pub manager: Option<String>,
}

impl Altered {
    /// The field whose value differs; `None` if it has the wanted value.
    pub fn unless_equal(path: &[&str], wanted: Option<String>, stored: Option<String>) -> Option<Self> {
        let path = || path.iter().map(|&part| part.to_owned()).collect();
        (wanted != stored).then(|| Self { path: path(), wanted, stored, manager: None })
    }

    /// The field and its two values.
    pub fn difference(&self) -> String {
        let shown =
            |value: &Option<String>| value.as_ref().map_or_else(|| "absent".to_owned(), |value| format!("{value:?}"));
        let (key, path) = self.path.split_last().map_or(("", &[][..]), |(key, path)| (key.as_str(), path));
        let field = if key.contains('/') { format!("{}[{key}]", path.join(".")) } else { self.path.join(".") };
        format!("{field} is {} instead of {}", shown(&self.stored), shown(&self.wanted))
    }
}

impl fmt::Display for Altered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let manager = self.manager.as_deref().map_or_else(
            || "managedFields names no manager of this field".to_owned(),
            |manager| format!("managedFields names {manager} as its manager"),
        );
        write!(
            f,
            "the API server accepted the write, but {}: an admission webhook or a mutating policy changes it; {manager}",
            self.difference()
        )
    }
}

/// The value of the annotation about withdrawals.
fn withdrawal(token: Option<&str>, number: u64) -> String {
    format!("{}.{number}", token.unwrap_or("0"))
}

impl RoleWrite {
    /// A field of this write that the API server has stored with another value; first the one that starts or stops the object. A deletion
    /// changes no field. A dry run shows whether the object would stop, whatever its label would be.
    pub fn altered_in(&self, lease: &str, stored: Object<'_>) -> Option<Altered> {
        if self.dry_run {
            return self.altered_change(stored);
        }
        if self.change == PodChange::Delete {
            return None;
        }
        let label = names::role_label(lease);
        let role = self.role.map(|role: PodRole| role.as_str().to_owned());
        let of_role = Altered::unless_equal(&["metadata", "labels", &label], role, stored.labels.get(&label).cloned());
        let of_annotation = |(key, wanted): (String, Option<String>)| {
            Altered::unless_equal(&["metadata", "annotations", &key], wanted, stored.annotations.get(&key).cloned())
        };
        let of_annotations = || self.annotations(lease).into_iter().find_map(of_annotation);
        self.altered_change(stored).or(of_role).or_else(of_annotations)
    }

    /// The annotations that the write sets; `None` removes one.
    pub fn annotations(&self, lease: &str) -> Vec<(String, Option<String>)> {
        let withdrawn = names::withdrawn_annotation(lease);
        let of_change = match self.change {
            PodChange::Start => {
                let mark = self.token.as_ref().map(|token| names::started_mark(token, &self.uid));
                Some((names::started_annotation(lease), mark))
            }
            PodChange::Fence(number) => Some((withdrawn, Some(withdrawal(self.token.as_deref(), number)))),
            PodChange::None | PodChange::Delete | PodChange::Run(_) => self.role.is_none().then_some((withdrawn, None)),
        };
        let token = (names::token_annotation(lease), self.token.clone());
        std::iter::once(token).chain(self.marks.iter().cloned()).chain(of_change).collect()
    }

    /// This write without its fence, the number of withdrawals, which is another one in each write; `None` if it has none.
    pub fn without_fence(&self, lease: &str) -> Option<Self> {
        let withdrawn = names::withdrawn_annotation(lease);
        let (fences, marks): (Vec<_>, Vec<_>) =
            self.marks.iter().cloned().partition(|(key, value)| *key == withdrawn && value.is_some());
        let is_fence = matches!(self.change, PodChange::Fence(_));
        let change = if is_fence { PodChange::None } else { self.change };
        (is_fence || !fences.is_empty()).then(|| Self { change, marks, ..self.clone() })
    }

    /// Whether the operator waits for a webhook that hangs, so that the API server stores the write: it stops something. The label of a
    /// plain pod is information, and its write is not urgent.
    pub(super) fn must_be_stored(&self) -> bool {
        let stops = self.role == Some(PodRole::Standby) || self.change == PodChange::Delete;
        stops && !self.dry_run && self.priority != Priority::Standby
    }

    fn altered_change(&self, stored: Object<'_>) -> Option<Altered> {
        match (self.change, stored.run) {
            (PodChange::Start, _) => {
                let gates = Some(stored.gates.join(", ")).filter(|gates| !gates.is_empty());
                Altered::unless_equal(&["spec", "schedulingGates"], None, gates)
            }
            (PodChange::Run(Run::Replicas(wanted)), Some(Run::Replicas(stored))) => {
                Altered::unless_equal(&["spec", "replicas"], Some(wanted.to_string()), Some(stored.to_string()))
            }
            (PodChange::Run(Run::Suspended(wanted)), Some(Run::Suspended(stored))) => {
                Altered::unless_equal(&["spec", "suspend"], Some(wanted.to_string()), Some(stored.to_string()))
            }
            (PodChange::None | PodChange::Delete | PodChange::Run(_) | PodChange::Fence(_), _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::election::PodFacts;
    use crate::samples;

    fn write(role: Option<PodRole>, token: Option<&str>, change: PodChange) -> RoleWrite {
        RoleWrite { role, token: token.map(str::to_owned), change, ..samples::role_write("a") }
    }

    fn stored(role: Option<&str>, annotations: &[(String, &str)], gates: &[&str]) -> PodFacts {
        PodFacts {
            labels: role.map(|role| (names::role_label("l"), role.to_owned())).into_iter().collect(),
            annotations: annotations.iter().map(|(key, value)| (key.clone(), (*value).to_owned())).collect(),
            gates: gates.iter().map(|&gate| gate.to_owned()).collect(),
            ..PodFacts::running("a")
        }
    }

    #[test]
    fn a_write_that_stops_something_must_be_stored() {
        let (active, standby) = (Some(PodRole::Active), Some(PodRole::Standby));
        let deletion = write(active, None, PodChange::Delete);
        let label = RoleWrite { priority: Priority::Standby, ..write(standby, None, PodChange::None) };
        for (write, must) in [
            (write(active, None, PodChange::None), false),
            (write(standby, None, PodChange::None), true),
            (RoleWrite { dry_run: true, ..deletion.clone() }, false),
            (deletion, true),
            (label, false),
        ] {
            assert_eq!(write.must_be_stored(), must, "{write:?}");
        }
    }

    #[test]
    fn each_field_of_ours_is_compared() {
        let (token, started) = (names::token_annotation("l"), names::started_annotation("l"));
        let token = |value| (token.clone(), value);
        let started = |value| (started.clone(), value);
        let active = write(Some(PodRole::Active), Some("7"), PodChange::None);
        let start = write(Some(PodRole::Active), Some("7"), PodChange::Start);
        let none = write(None, None, PodChange::None);
        let gate = "lease.redislease.io/l";
        for (write, stored, field) in [
            (&active, stored(Some("active"), &[token("7")], &[]), None),
            (
                &active,
                stored(None, &[token("7")], &[]),
                Some("metadata.labels[lease.redislease.io/l] is absent instead of \"active\""),
            ),
            (
                &active,
                stored(Some("active"), &[token("6")], &[]),
                Some("metadata.annotations[token.redislease.io/l] is \"6\" instead of \"7\""),
            ),
            (&start, stored(Some("active"), &[token("7"), started("7.uid-a")], &[]), None),
            (
                &start,
                stored(Some("active"), &[token("7")], &[]),
                Some("metadata.annotations[started.redislease.io/l] is absent"),
            ),
            (
                &start,
                stored(Some("active"), &[token("7"), started("7.uid-a")], &[gate]),
                Some("spec.schedulingGates is \"lease.redislease.io/l\" instead of absent"),
            ),
            // What stops or starts the object is named first.
            (&start, stored(None, &[], &[gate]), Some("spec.schedulingGates is")),
            (&none, stored(None, &[], &[gate]), None),
            (
                &none,
                stored(Some("standby"), &[], &[]),
                Some("metadata.labels[lease.redislease.io/l] is \"standby\" instead of absent"),
            ),
        ] {
            let altered = write.altered_in("l", stored.object()).map(|altered| altered.to_string());
            match field {
                Some(field) => {
                    assert!(altered.as_ref().is_some_and(|altered| altered.contains(field)), "{altered:?} {field}");
                }
                None => assert_eq!(altered, None),
            }
        }
        let deleted = write(None, None, PodChange::Delete);
        assert_eq!(deleted.altered_in("l", stored(Some("standby"), &[], &[]).object()), None);
    }

    #[test]
    fn a_fence_is_another_value_in_each_write_and_can_be_left_out() {
        let withdrawn = names::withdrawn_annotation("l");
        let fence = |token| write(None, token, PodChange::Fence(3)).annotations("l").pop();
        assert_eq!(fence(Some("7")), Some((withdrawn.clone(), Some("7.3".to_owned()))));
        assert_eq!(fence(None), Some((withdrawn.clone(), Some("0.3".to_owned()))));
        let with = |change, marks: &[(&str, Option<&str>)]| {
            let marks = marks.iter().map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned))).collect();
            RoleWrite { marks, ..write(None, Some("7"), change) }
        };
        let (none, fenced, other) = (PodChange::None, (&*withdrawn, Some("7.3")), ("other", Some("1")));
        for (change, marks, without) in [
            (none, vec![], None),
            (none, vec![other], None),
            (none, vec![(&*withdrawn, None)], None),
            (none, vec![other, fenced], Some(with(none, &[other]))),
            (PodChange::Fence(3), vec![other], Some(with(none, &[other]))),
        ] {
            assert_eq!(with(change, &marks).without_fence("l"), without, "{change:?} {marks:?}");
        }
    }
}
