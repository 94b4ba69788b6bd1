//! What is wrong with an annotation, as the text of an event.

use crate::api::names::ANNOTATION_PREFIX;
use crate::api::spelling::WORKLOAD_ANNOTATIONS;
use crate::status::NoticeReason;

use super::suggest;

/// What an unknown annotation of a pod or of a RedisLease does.
pub const IGNORED: &str = "The operator ignores it until this is corrected.";

/// A problem that is reported as an event on the object with the annotation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The reason of the event.
    pub reason: NoticeReason,
    /// The text of the event.
    pub note: String,
}

impl Problem {
    /// The annotation has no effect on this kind of object. `name` is its key without the prefix; `until` says what happens
    /// until it is corrected.
    pub fn unknown(name: &str, value: &str, on: Place, until: &str) -> Self {
        Self::without_effect(name, value, &on.advice(name), until)
    }

    /// As [`Problem::unknown`], with what to do: a clause about the annotation.
    pub fn without_effect(name: &str, value: &str, advice: &str, until: &str) -> Self {
        let note = format!("Annotation {ANNOTATION_PREFIX}{name} (value {value:?}) {advice}. {until}");
        Self { reason: NoticeReason::UnknownAnnotation, note }
    }

    /// The annotation has an invalid value, or is not set and must be. `instead` is the nearest valid value, if any is near.
    pub fn invalid(name: &str, value: Option<&str>, must: &str, instead: Option<&str>, until: &str) -> Self {
        let is = value.map_or_else(|| "is not set".to_owned(), |value| format!("is {value:?}"));
        let advice = instead.map(|instead| format!(": use {instead:?}")).unwrap_or_default();
        let note = format!("Annotation {ANNOTATION_PREFIX}{name} {is} and must {must}{advice}. {until}");
        Self { reason: NoticeReason::InvalidAnnotation, note }
    }
}

/// A kind of object on which annotations have an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A Deployment, StatefulSet, DaemonSet, CronJob or Job.
    Workload,
    /// A pod.
    Pod,
    /// A RedisLease.
    Lease,
}

impl Place {
    const ALL: [Self; 3] = [Self::Workload, Self::Pod, Self::Lease];

    /// The annotations that users write on this kind of object, without their prefix.
    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Workload => &WORKLOAD_ANNOTATIONS,
            Self::Pod => &["priority", "exclude"],
            Self::Lease => &["handover-requested", "handover-to"],
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Workload => "a workload",
            Self::Pod => "a pod",
            Self::Lease => "a RedisLease",
        }
    }

    /// How to set an annotation on this kind of object.
    const fn instruction(self) -> &'static str {
        match self {
            Self::Workload => {
                "write it into the metadata of the Deployment, StatefulSet, DaemonSet, CronJob or Job itself, not into its \
                 pod template"
            }
            Self::Pod => "set it on the pods, in the pod template",
            Self::Lease => "set it on the RedisLease",
        }
    }

    /// What to do about an annotation that has no effect on this kind of object: a clause about the annotation.
    fn advice(self, name: &str) -> String {
        let others = || Self::ALL.into_iter().filter(|place| *place != self);
        if let Some(place) = others().find(|place| place.names().contains(&name)) {
            return format!("has no effect on {}: {}", self.title(), place.instruction());
        }
        if let Some(similar) = suggest::nearest(name, self.names()) {
            return format!("is unknown: use {ANNOTATION_PREFIX}{similar}");
        }
        let similar = |place: Self| Some((place, suggest::nearest(name, place.names())?));
        if let Some((place, similar)) = others().find_map(similar) {
            return format!("is unknown: use {ANNOTATION_PREFIX}{similar}, and {}", place.instruction());
        }
        let known: Vec<String> = self.names().iter().map(|known| format!("{ANNOTATION_PREFIX}{known}")).collect();
        format!("is unknown in this version. Known annotations of {}: {}", self.title(), known.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names;

    #[test]
    fn the_names_are_those_that_the_operator_reads() {
        for (place, read) in [
            (Place::Pod, [names::PRIORITY_ANNOTATION, names::EXCLUDE_ANNOTATION]),
            (Place::Lease, [names::HANDOVER_REQUESTED_ANNOTATION, names::HANDOVER_TO_ANNOTATION]),
        ] {
            assert!(place.names().iter().map(|name| format!("{ANNOTATION_PREFIX}{name}")).eq(read), "{place:?}");
        }
    }
}
