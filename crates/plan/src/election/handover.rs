//! A requested handover: the lease moves from its holder to another pod or to another cluster.

use std::collections::BTreeMap;

use super::Electorate;
use crate::api::lease_status::{MAX_HANDOVER_ID, MAX_HANDOVER_TARGET};
use crate::api::names;

/// A handover that the annotations of a `RedisLease` request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoverRequest {
    /// Distinguishes the request from earlier ones.
    pub id: String,
    /// The value of `redislease.io/handover-to`.
    pub to: Option<String>,
}

/// The target of a handover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandoverTarget {
    /// The next eligible pod.
    NextPod,
    /// The pod with this name.
    Pod(String),
    /// A pod of the cluster with this name.
    Cluster(String),
}

/// What the operator does about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandoverResponse {
    /// It ends the term.
    EndTerm(HandoverTarget),
    /// It ends no term: the target holds the lease already.
    AlreadyThere(String),
    /// It ends no term, for this reason.
    Refuse(String),
}

impl HandoverRequest {
    /// The request in these annotations, if there is one. Longer values are cut, so that the status stays small.
    pub fn of(annotations: Option<&BTreeMap<String, String>>) -> Option<Self> {
        let text = |key, most| {
            let value: &String = annotations?.get(key)?;
            let text: String = value.trim().chars().take(most).collect();
            Some(text).filter(|text| !text.is_empty())
        };
        let id = text(names::HANDOVER_REQUESTED_ANNOTATION, MAX_HANDOVER_ID)?;
        Some(Self { id, to: text(names::HANDOVER_TO_ANNOTATION, MAX_HANDOVER_TARGET) })
    }

    /// What to do about the request, if the pod named `holder` holds the lease in the cluster named `cluster`.
    pub fn respond(&self, holder: &str, electorate: &Electorate, cluster: &str) -> HandoverResponse {
        let target = match HandoverTarget::of(self.to.as_deref()) {
            Ok(target) => target,
            Err(problem) => return HandoverResponse::Refuse(problem),
        };
        match &target {
            HandoverTarget::Pod(name) if name == holder => {
                return HandoverResponse::AlreadyThere(format!("The pod {name} holds the lease already."));
            }
            HandoverTarget::Cluster(name) if name == cluster => {
                return HandoverResponse::AlreadyThere(format!("A pod of the cluster {name} holds the lease already."));
            }
            HandoverTarget::Pod(name) if !electorate.eligible.iter().any(|pod| pod.name == *name) => {
                let known = electorate.ineligible.iter().find(|(pod, _)| pod.name == *name);
                return HandoverResponse::Refuse(known.map_or_else(
                    || format!("No candidate of the lease has the name {name}."),
                    |(_, why)| format!("The pod {name} cannot be elected: {}.", why.explanation()),
                ));
            }
            HandoverTarget::NextPod if !electorate.eligible.iter().any(|pod| pod.name != holder) => {
                let problem = "No other pod of this cluster can be elected. To hand the lease over to another cluster, \
                               set redislease.io/handover-to to cluster/NAME.";
                return HandoverResponse::Refuse(problem.into());
            }
            HandoverTarget::Pod(_) | HandoverTarget::NextPod | HandoverTarget::Cluster(_) => {}
        }
        HandoverResponse::EndTerm(target)
    }
}

impl HandoverTarget {
    /// Parses the value of `redislease.io/handover-to`.
    ///
    /// # Errors
    /// Why the value names no candidate, as a sentence.
    pub fn of(to: Option<&str>) -> Result<Self, String> {
        let Some(to) = to else { return Ok(Self::NextPod) };
        match to.split_once('/') {
            Some(("pod", name)) if names::is_object_name(name) => Ok(Self::Pod(name.into())),
            Some(("cluster", name)) if !name.is_empty() && names::is_cluster_name(name) => {
                Ok(Self::Cluster(name.into()))
            }
            _ => Err(format!("redislease.io/handover-to is {to:?} and must be pod/NAME or cluster/NAME.")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::HandoverResponse::{AlreadyThere, EndTerm, Refuse};
    use super::*;
    use crate::election::{Eligibility, PodFacts};

    fn request(to: &str) -> HandoverRequest {
        let annotations = [(names::HANDOVER_REQUESTED_ANNOTATION, "1"), (names::HANDOVER_TO_ANNOTATION, to)];
        let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        HandoverRequest::of(Some(&annotations)).unwrap()
    }

    fn electorate(pods: &[(&str, bool)]) -> Electorate {
        let pods = pods.iter().map(|(name, ready)| Arc::new(PodFacts { ready: *ready, ..PodFacts::running(name) }));
        Electorate::of(pods, &Eligibility { requires_ready: true, gated: None })
    }

    #[test]
    fn a_request_needs_an_id_and_is_cut() {
        let of = |pairs: &[(&str, String)]| {
            HandoverRequest::of(Some(&pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()))
        };
        assert_eq!(HandoverRequest::of(None), None);
        assert_eq!(of(&[(names::HANDOVER_TO_ANNOTATION, "pod/a".into())]), None);
        assert_eq!(of(&[(names::HANDOVER_REQUESTED_ANNOTATION, " ".into())]), None);
        let long = of(&[(names::HANDOVER_REQUESTED_ANNOTATION, "ä".repeat(1000))]).unwrap();
        assert_eq!((long.id.chars().count(), long.to), (MAX_HANDOVER_ID, None));
    }

    #[test]
    fn each_target_has_its_response() {
        let pods = electorate(&[("a", true), ("b", true), ("c", false)]);
        let respond = |to| request(to).respond("a", &pods, "east");
        assert_eq!(respond(""), EndTerm(HandoverTarget::NextPod));
        assert_eq!(respond("pod/b"), EndTerm(HandoverTarget::Pod("b".into())));
        assert_eq!(respond("cluster/west"), EndTerm(HandoverTarget::Cluster("west".into())));
        assert_eq!(respond("pod/a"), AlreadyThere("The pod a holds the lease already.".into()));
        assert_eq!(respond("cluster/east"), AlreadyThere("A pod of the cluster east holds the lease already.".into()));
        assert_eq!(respond("pod/c"), Refuse("The pod c cannot be elected: it is not Ready.".into()));
        assert_eq!(respond("pod/d"), Refuse("No candidate of the lease has the name d.".into()));
        for wrong in ["b", "pod/", "pod/B!", "cluster/", "cluster/a b", "node/x"] {
            let Refuse(problem) = respond(wrong) else { panic!("{wrong}") };
            assert!(
                problem.contains(&format!("{wrong:?}")) && problem.contains("pod/NAME or cluster/NAME"),
                "{problem}"
            );
        }
    }

    #[test]
    fn without_another_eligible_pod_only_another_cluster_can_take_over() {
        let pods = electorate(&[("a", true), ("c", false)]);
        assert!(matches!(request("").respond("a", &pods, "east"), Refuse(problem) if problem.contains("cluster/NAME")));
        assert!(matches!(request("cluster/west").respond("a", &pods, "east"), EndTerm(_)));
    }
}
