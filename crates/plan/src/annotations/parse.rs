//! What the annotations of a workload request, and what is wrong with them.

use std::sync::LazyLock;

use crate::api::lease::{CandidatesSpec, WorkloadRef};
use crate::api::names::{
    ACTIVATED_BY_ANNOTATION, ANNOTATION_PREFIX, LEASE_ANNOTATION, MAX_LEASE_NAME, is_lease_name, is_object_name,
    names_a_lease,
};
use crate::api::spelling::{WORKLOAD_ANNOTATIONS, is_meant_as_name};
use crate::api::validated::{MAX_LEASE, shortest_lease};
use crate::api::{Duration, InvalidSpec, RedisLease, RedisLeaseSpec, ValidLease};
use crate::status::NoticeReason;
use serde_json::json;

use super::facts::WorkloadFacts;
use super::parser::{Parser, UNCHANGED};
use super::problem::{Place, Problem};
use super::{suggest, ways};

/// The lease that a workload requests.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub struct Desired {
    pub name: String,
    pub spec: RedisLeaseSpec,
}

/// The request of a workload.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// It requests no lease.
    None,
    /// It requests a lease.
    Lease(Box<Desired>),
    /// Its annotations are invalid: what exists stays.
    Invalid,
}

/// The annotations of a workload, parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// What they request.
    pub request: Request,
    /// What is wrong with them.
    pub problems: Vec<Problem>,
    /// The quorum whose leader acts on them.
    pub quorum: String,
}

/// Parses the annotations of a workload.
pub fn parse(workload: &WorkloadFacts) -> Parsed {
    let mut parser = Parser { annotations: &workload.annotations, problems: Vec::new() };
    let is_unclear = parser.unknown() | parser.activated_by();
    let mut spec = defaults(workload);
    parser.quorum(&mut spec);
    let quorum = spec.quorum_ref.name.clone();
    if !is_unclear && matches!(parser.value("lease"), None | Some("false")) {
        parser.without_effect();
        return parser.done(Request::None, quorum);
    }
    parser.durations(&mut spec);
    (spec.granularity, spec.activation) = ways::parse(&mut parser, workload.key.1.kind);
    let name = match parser.value("lease") {
        None => return parser.done(Request::Invalid, quorum),
        Some("false") => return parser.done(Request::None, quorum),
        Some(value) => parser.name(value, &workload.key.1.name),
    };
    parser.two_leases(name.as_deref());
    let Some(name) = name.filter(|_| parser.problems.is_empty()) else {
        return parser.done(Request::Invalid, quorum);
    };
    parser.rules(workload, &name, &spec);
    let is_valid = parser.problems.is_empty();
    parser.done(if is_valid { Request::Lease(Box::new(Desired { name, spec })) } else { Request::Invalid }, quorum)
}

/// A lease without optional fields: the defaults are those of the API.
static DEFAULTS: LazyLock<RedisLeaseSpec> = LazyLock::new(|| {
    serde_json::from_value(json!({"candidates": {}})).expect("every field except candidates has a default")
});

/// The quorum of a workload that names none.
pub fn default_quorum() -> &'static str {
    &DEFAULTS.quorum_ref.name
}

/// The spec of a lease for this workload without other annotations.
fn defaults(workload: &WorkloadFacts) -> RedisLeaseSpec {
    let target = &workload.key.1;
    let candidates = CandidatesSpec {
        selector: None,
        workload_ref: Some(WorkloadRef {
            api_version: target.kind.api_version().into(),
            kind: target.kind.as_str().into(),
            name: target.name.clone(),
        }),
    };
    RedisLeaseSpec { candidates, ..DEFAULTS.clone() }
}

impl Parser<'_> {
    fn done(self, request: Request, quorum: String) -> Parsed {
        Parsed { request, problems: self.problems, quorum }
    }

    /// Reports unknown annotations. Returns whether one of them may be meant to name the lease.
    fn unknown(&mut self) -> bool {
        let mut is_misspelt = false;
        for (name, value) in self.annotations.iter().filter(|(name, _)| !WORKLOAD_ANNOTATIONS.contains(&name.as_str()))
        {
            is_misspelt |= is_meant_as_name(name);
            self.problems.push(Problem::unknown(name, value, Place::Workload, UNCHANGED));
        }
        is_misspelt
    }

    /// Reports a value of `activated-by` that no lease has as its name. Returns whether it is one.
    fn activated_by(&mut self) -> bool {
        let Some(value) = self.value("activated-by").filter(|value| !names_a_lease(value)) else { return false };
        let must =
            format!("be the name of a RedisLease, of at most {MAX_LEASE_NAME} characters, and not true or false");
        let instead = suggest::object_name(value, MAX_LEASE_NAME).filter(|name| names_a_lease(name));
        self.invalid("activated-by", value, &must, instead.as_deref());
        true
    }

    /// Reports that the workload requests the lease `first` and names another one that may start and stop it.
    fn two_leases(&mut self, first: Option<&str>) {
        let second = self.value("activated-by").filter(|second| names_a_lease(second));
        if let (Some(first), Some(second)) = (first, second)
            && first != second
        {
            let note = format!(
                "Annotations {LEASE_ANNOTATION} and {ACTIVATED_BY_ANNOTATION} name two leases, {first} and {second}, and no term \
                 of them begins: remove one of the annotations. {UNCHANGED}"
            );
            self.problems.push(Problem { reason: NoticeReason::InvalidAnnotation, note });
        }
    }

    /// Reports the annotations of a workload that requests no lease: they have no effect, whatever their values are.
    fn without_effect(&mut self) {
        let others = self.annotations.keys().filter(|name| !["lease", "activated-by"].contains(&name.as_str()));
        let others = others.filter(|name| WORKLOAD_ANNOTATIONS.contains(&name.as_str()));
        let others: Vec<String> = others.map(|name| format!("{ANNOTATION_PREFIX}{name}")).collect();
        let others = others.join(", ");
        let note = match (self.value("activated-by"), self.value("lease")) {
            _ if others.is_empty() => return,
            (Some(lease), _) => format!(
                "With {ACTIVATED_BY_ANNOTATION}, RedisLease {lease} decides, and these annotations have no effect: {others}. \
                 Remove them."
            ),
            (None, None) => format!(
                "Without {LEASE_ANNOTATION}, these annotations have no effect: {others}. Set {LEASE_ANNOTATION} to \"true\", or \
                 remove them."
            ),
            // It is switched off.
            (None, Some(_)) => return,
        };
        self.problems.push(Problem { reason: NoticeReason::UnknownAnnotation, note });
    }

    /// The name of the lease.
    fn name(&mut self, value: &str, workload: &str) -> Option<String> {
        let must = format!("be \"true\", \"false\" or the name of the lease, of at most {MAX_LEASE_NAME} characters");
        if names_a_lease(value) {
            return Some(value.to_owned());
        }
        if value == "true" {
            if is_lease_name(workload) {
                return Some(workload.to_owned());
            }
            let must = format!(
                "be a name, because the name of the workload is longer than the {MAX_LEASE_NAME} characters of a lease"
            );
            self.invalid("lease", value, &must, suggest::object_name(workload, MAX_LEASE_NAME).as_deref());
            return None;
        }
        let name = suggest::object_name(value, MAX_LEASE_NAME).filter(|name| names_a_lease(name));
        self.invalid("lease", value, &must, Some(name.as_deref().unwrap_or_else(|| suggest::truth(value))));
        None
    }

    fn quorum(&mut self, spec: &mut RedisLeaseSpec) {
        let Some(value) = self.value("quorum") else { return };
        if is_object_name(value) {
            value.clone_into(&mut spec.quorum_ref.name);
        } else {
            let instead = suggest::object_name(value, 253);
            let instead = instead.as_deref().unwrap_or(default_quorum());
            self.invalid("quorum", value, "be the name of a RedisQuorum", instead);
        }
    }

    fn durations(&mut self, spec: &mut RedisLeaseSpec) {
        for (name, field) in [
            ("lease-duration", &mut spec.lease_duration),
            ("renew-interval", &mut spec.renew_interval),
            ("grace-period", &mut spec.grace_period),
        ] {
            let Some(value) = self.value(name) else { continue };
            let text = Duration::new(value);
            if text.parse().is_some_and(|duration| !duration.is_zero() && duration <= MAX_LEASE) {
                *field = text;
            } else {
                let must =
                    "be a duration longer than 0s and at most 1h, written in h, m, s and ms, such as 30s or 1m30s";
                self.invalid(name, value, must, suggest::duration(value, field.as_str()).as_str());
            }
        }
    }

    /// Checks the rules that the API server has for the spec of a lease.
    fn rules(&mut self, workload: &WorkloadFacts, name: &str, spec: &RedisLeaseSpec) {
        let mut lease = RedisLease::new(name, spec.clone());
        lease.metadata.namespace = Some(workload.key.0.to_string());
        let Err(InvalidSpec { field, must, .. }) = ValidLease::try_from(&lease) else { return };
        if field != "spec.leaseDuration" {
            // The parts were checked before: only rules about several fields are left, and these are about the duration.
            let note =
                format!("The annotations {ANNOTATION_PREFIX}* request a lease whose {field} must {must}. {UNCHANGED}");
            self.problems.push(Problem { reason: NoticeReason::InvalidAnnotation, note });
            return;
        }
        let durations = spec.renew_interval.parse().zip(spec.grace_period.parse());
        let shortest = durations.and_then(|(renew, grace)| shortest_lease(renew, grace)).map(Duration::from);
        self.invalid("lease-duration", self.value("lease-duration"), &must, shortest.as_ref().map(Duration::as_str));
    }
}
