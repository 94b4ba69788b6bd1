//! Resolves the inputs of one turn: the quorum, the candidates, and why no new term may start.

use std::sync::Arc;

use redislease_core::time::Time;

use super::activation::{self, Activator};
use super::keeper_link::KeeperLink;
use super::recorded::latest_token;
use super::stop_test::StopTest;
use super::template_label;
use super::workload::{Missing, missing_consent};
use super::{CandidateFacts, Facts, Identity, OpenQuorum, PodKnowledge};
use crate::api::conditions::LeaseReady;
use crate::api::{RedisLease, ValidLease, names};
use crate::election::{EndCause, WorkloadFacts};
use crate::status::Obstacle;

const BEING_DELETED: &str = "No pod of this cluster holds the lease, and none is elected: the RedisLease is being deleted. It stays \
                             until its metadata.finalizers are removed.";

const GOES_ON: &str = " The term goes on although spec.suspend is true, because the operator cannot stop what runs.";

const FIRST_CONTACT: &str =
    "The workload runs, and the operator has not started it: stop it yourself if it must not run.";

/// What all parts of a reconciler know in one turn.
#[derive(Clone, Debug)]
pub(super) struct Turn<'a> {
    pub now: Time,
    pub identity: &'a Identity,
    pub lease: &'a Arc<RedisLease>,
    pub facts: &'a Facts,
    /// The spec in use.
    pub spec: Option<&'a ValidLease>,
    /// Default until they are resolved.
    pub inputs: Inputs,
}

impl Turn<'_> {
    /// Whether the resource is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.lease.metadata.deletion_timestamp.is_some()
    }

    /// Why a running term must end, whatever holds it. While the operator cannot stop what runs, only a deletion ends the term:
    /// otherwise another cluster would start its own beside it.
    pub fn revoked(&self) -> Option<EndCause> {
        let is_stoppable = !self.inputs.unstoppable;
        let causes = [
            (self.is_deleting(), EndCause::Deleted),
            (self.lease.spec.suspend && is_stoppable, EndCause::Suspended),
            (self.facts.quorum.denied && is_stoppable, EndCause::NamespaceNotAllowed),
        ];
        causes.into_iter().find_map(|(revoked, cause)| revoked.then_some(cause))
    }

    pub fn may_begin(&self) -> bool {
        self.inputs.obstacle.is_none() && self.inputs.quorum.is_some() && self.facts.electorate().is_some()
    }

    /// Whether a new term may begin and a majority of the nodes votes.
    pub fn can_elect(&self) -> bool {
        let votes = |open: &Arc<OpenQuorum>| self.facts.quorum.up >= open.quorum.majority();
        self.may_begin() && self.inputs.quorum.as_ref().is_some_and(votes)
    }

    /// Whether the pod is a candidate. While candidates are unknown, every pod counts as one.
    pub fn is_candidate(&self, pod_uid: &str) -> bool {
        self.facts.electorate().is_none_or(|electorate| electorate.contains(pod_uid))
    }

    /// Whether the keeper uses another quorum than the spec names now.
    pub fn replaces(&self, link: &KeeperLink) -> bool {
        match (&self.inputs.quorum, &link.quorum) {
            (Some(now), Some(then)) => now.id != then.id,
            (None, Some(_)) => self.facts.quorum.replaced,
            _ => false,
        }
    }
}

/// What the parts of a reconciler object to in a new term. The messages are sentences.
pub(super) struct Objections {
    /// Whether a term runs, or the status names one that this process has not adopted yet.
    pub is_running: bool,
    /// The operator has no right to write to the workload.
    pub forbidden: Option<String>,
    /// What runs on although it is to be stopped, and why, as a clause.
    pub refused_stop: Option<(String, String)>,
    /// Whether the holder can be stopped, if a request is to end its term.
    pub stop_test: Option<StopTest>,
    /// The term in the status must not be touched yet.
    pub block: Option<String>,
    /// The last term could not be published.
    pub cools_down: bool,
    /// Another cluster is to acquire the lease first.
    pub yields: Option<String>,
}

/// The resolved inputs of one turn.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent fact about the resource")]
pub(super) struct Inputs {
    /// The quorum that the spec names, if it can be used.
    pub quorum: Option<Arc<OpenQuorum>>,
    /// Whether the term in the status must not be touched yet.
    pub blocked: bool,
    /// Whether the candidate is a workload that does not let the lease start and stop it.
    pub refused: bool,
    /// Whether the operator has no right to start the workload, which is stopped. One that runs keeps its term: the operator could
    /// not stop it either.
    pub unstartable: bool,
    /// Whether the candidate may run and the operator cannot stop it, or has not tested yet that it can.
    pub unstoppable: bool,
    /// Whether this test is under way.
    pub tests_stop: bool,
    /// The workload names the lease, and its annotations ask for another activation.
    pub differs: bool,
    /// Whether the controller of the candidates replaces each pod whose label changes.
    pub replaces_pods: bool,
    /// What runs without a term, because it cannot be stopped, as a sentence.
    pub runs_on: Option<String>,
    /// Why no new term may start.
    pub obstacle: Option<(LeaseReady, String)>,
}

impl Inputs {
    /// Resolves the inputs. The first problem is the obstacle; it ends no term.
    pub fn resolve(turn: &Turn<'_>, quorum: Option<Arc<OpenQuorum>>, objections: Objections) -> Self {
        let Turn { lease, facts, .. } = turn;
        let Objections { is_running, forbidden, refused_stop, stop_test, block, cools_down, yields } = objections;
        let missing = missing_consent(facts);
        let unusable = match &facts.candidates {
            CandidateFacts::Unusable(reason, message) => Some((*reason, message.clone())),
            CandidateFacts::Unknown | CandidateFacts::Known(_) => None,
        };
        let is_off = activation::is_unstoppable(&turn.identity.name, facts);
        let (tests_stop, stop_refused) = match stop_test {
            Some(StopTest::Due) => (true, None),
            Some(StopTest::Refused(why)) => (false, Some(why)),
            Some(StopTest::Accepted) | None => (false, None),
        };
        let selected = template_label::obstacle(facts, &turn.identity.name);
        let mut inputs = Self {
            quorum,
            blocked: block.is_some(),
            refused: matches!(missing, Some(Missing::Name(_))),
            unstartable: forbidden.is_some() && facts.workload().is_some_and(|workload| workload.run.is_stopped()),
            unstoppable: is_off || tests_stop || stop_refused.is_some(),
            tests_stop,
            differs: matches!(missing, Some(Missing::Way(_))),
            replaces_pods: selected.is_some(),
            runs_on: what_runs_on(turn, refused_stop).filter(|_| !is_running),
            obstacle: None,
        };
        let not_published = Obstacle::NOT_PUBLISHED;
        let obstacles = [
            turn.is_deleting().then(|| (LeaseReady::Unheld, BEING_DELETED.to_owned())),
            is_running.then(|| goes_on(turn, is_off, stop_refused)).flatten(),
            // Until the test is over, the term goes on.
            (lease.spec.suspend && !tests_stop).then(|| {
                let runs_on =
                    inputs.runs_on.clone().or_else(|| is_first_contact(turn).then(|| FIRST_CONTACT.to_owned()));
                let runs_on = runs_on.iter().map(|runs_on| format!(" {runs_on}")).collect::<String>();
                (LeaseReady::Suspended, format!("spec.suspend is true: no pod is elected until it is false.{runs_on}"))
            }),
            facts.spec.problem.clone().map(|problem| (LeaseReady::InvalidSpec, problem)),
            implausible_token(lease).map(|problem| (LeaseReady::InvalidSpec, problem)),
            activation::obstacle(facts),
            missing.map(|(Missing::Name(why) | Missing::Way(why))| (LeaseReady::NotPermitted, why)),
            forbidden.map(|why| (LeaseReady::Forbidden, why)),
            facts.quorum.obstacle.clone(),
            block.map(|message| (LeaseReady::QuorumUnavailable, message)),
            unusable.map(|(reason, why)| (reason, without_its_workload(turn, is_running, reason, why))),
            selected,
            cools_down.then(|| (not_published.reason, not_published.message.to_owned())),
            yields.map(|message| (LeaseReady::Unheld, message)),
        ];
        inputs.obstacle = obstacles.into_iter().flatten().next();
        inputs
    }
}

/// Why the workload cannot be used, and what a person must do about a term that outlasts it.
fn without_its_workload(turn: &Turn<'_>, is_running: bool, reason: LeaseReady, why: String) -> String {
    let is_of_cluster = turn.spec.is_some_and(|spec| spec.cluster.is_some());
    let outlasts = is_running && is_of_cluster && names::created_for(&turn.lease.metadata).is_some();
    if !outlasts || reason != LeaseReady::InvalidReference {
        return why;
    }
    format!(
        "{why}. The term goes on, because the pods of the workload may run on: create it again, or, when they have stopped, delete the \
         RedisLease."
    )
}

/// No later term can be published: its token would be lower than that in the status.
fn implausible_token(lease: &RedisLease) -> Option<String> {
    let token = Some(latest_token(lease)).filter(|token| !token.is_plausible())?;
    Some(format!(
        "status.fencingToken is {token}, which no Redis node gave. A running term goes on, and no new term of this cluster can begin. \
         Set spec.suspend to true and wait until the holder has stopped. Then delete the RedisLease and create it again: the next token \
         is greater than every token that a Redis node gave."
    ))
}

/// Why a term goes on although something is to end it. `is_off`: the operator must not stop what may run; `refused`: it cannot.
fn goes_on(turn: &Turn<'_>, is_off: bool, refused: Option<Box<str>>) -> Option<(LeaseReady, String)> {
    let suspended = turn.lease.spec.suspend;
    if let Some((reason, message)) = activation::obstacle(turn.facts).filter(|_| is_off && suspended) {
        return Some((reason, format!("{message}{GOES_ON}")));
    }
    let goes_on = if suspended { GOES_ON } else { "" };
    let what = match &turn.facts.holder {
        PodKnowledge::Here(holder) => {
            let activator = Activator::of(&turn.identity.name, turn.facts);
            format!("pod {}", activator.earlier(turn.facts, &holder.facts.uid).unwrap_or(&holder.facts).name)
        }
        PodKnowledge::Workload | PodKnowledge::Unseen | PodKnowledge::Gone { .. } => "workload".to_owned(),
    };
    refused.map(|why| (LeaseReady::Forbidden, format!("The operator cannot stop the {what}: {why}.{goes_on}")))
}

/// Whether the candidate is a workload that runs, and that its lease has never written.
fn is_first_contact(turn: &Turn<'_>) -> bool {
    let owner = names::owner_annotation(&turn.identity.name);
    let is_new = |workload: &&WorkloadFacts| workload.annotations.get(&owner).is_none();
    turn.facts.workload().filter(is_new).is_some_and(|workload| !workload.run.is_stopped())
}

/// What runs on after its term, as a sentence. `refused`: what the API server has refused to stop, and why.
fn what_runs_on(turn: &Turn<'_>, refused: Option<(String, String)>) -> Option<String> {
    let (what, why) = refused.or_else(|| activation::runs_on(&turn.identity.name, turn.facts))?;
    Some(format!("{what} runs on, because it cannot be stopped: {why}."))
}
