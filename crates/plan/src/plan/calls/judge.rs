//! What an answer means for the queue and for the caller.

use super::answer::{
    Answer, Body, CallError, Changed, Found, Outcome, RoleAnswer, Stored, WorkloadFound, WorkloadRead,
};
use super::managers::manager_of;
use super::request::Request;
use super::submission::Verdict;
use crate::api::validated::WorkloadKind;
use crate::plan::{Altered, Read, RoleOutcome, RoleWrite, StatusOutcome};

/// What the queue and the log need to know about the end of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// What the answer means for the queue.
    pub verdict: Verdict,
    /// Why it was refused or not answered.
    pub problem: Option<String>,
}

impl Judged {
    fn of(error: Option<&CallError>) -> Self {
        let verdict = match error {
            None | Some(CallError::NotFound) => Verdict::Done,
            Some(CallError::Conflict) => Verdict::Conflict,
            Some(CallError::Unanswered(_)) => Verdict::Unanswered,
            Some(CallError::Refused(_) | CallError::Unreadable(_)) => Verdict::Refused,
            Some(CallError::Panicked(_)) => Verdict::Panicked,
        };
        let has_problem = !matches!(verdict, Verdict::Done | Verdict::Conflict);
        Self { verdict, problem: error.filter(|_| has_problem).map(ToString::to_string) }
    }
}

/// The lease does not exist any more. Until the watch shows that, each turn may write or read it again: the second time, it waits.
const UNTIL_THE_WATCH_SHOWS_IT: Verdict = Verdict::Conflict;

/// Takes the content of one kind out of an answer.
macro_rules! content {
    ($answer:expr, $kind:ident) => {
        $answer.and_then(|body| match body {
            Body::$kind(content) => Ok(content),
            // Its content may be a secret.
            _ => Err(CallError::Panicked("the answer is of another kind than the request".to_owned())),
        })
    };
}

/// What the answer means for the queue and for the caller. `first` is the error of a role write whose object was read after it.
pub(super) fn judge(request: &Request, first: Option<CallError>, answer: Answer) -> (Judged, Outcome) {
    let mut judged = Judged::of(answer.as_ref().err());
    let sentence = |error: CallError| error.to_string();
    let outcome = match request {
        Request::LeaseStatus { .. } => return judge_status(judged, answer),
        Request::Role { lease, write, .. } => {
            let answer = content!(answer, Object);
            let (judged, answer) = match first {
                Some(first) => judge_second(write, &first, answer),
                None => (judged, judge_role(&lease.name, write, answer)),
            };
            return (judged, Outcome::Role(write.uid.clone(), answer));
        }
        Request::Read { lease, read: Read::Lease } => {
            let read = match content!(answer, Lease) {
                Ok(found) => Ok((found.metadata.uid.as_deref() == Some(&*lease.uid)).then_some(found)),
                Err(CallError::NotFound) => Ok(None),
                Err(error) => Err(error.to_string()),
            };
            if matches!(read, Ok(None)) {
                judged.verdict = UNTIL_THE_WATCH_SHOWS_IT;
            }
            Outcome::Lease(read)
        }
        Request::Read { read: Read::Holder { uid, workload, .. }, .. } => {
            Outcome::Holder(uid.clone(), found(content!(answer, Object), uid, *workload).map_err(sentence))
        }
        Request::Read { read: Read::Startable, .. } => Outcome::Startable(content!(answer, Pods).map_err(sentence)),
        Request::Read { read: Read::Node { uid, .. }, .. } => {
            Outcome::Node(uid.clone(), content!(answer, Node).map_err(sentence))
        }
        Request::Workload(_) => Outcome::Workload(match content!(answer, Workload) {
            Ok(found) => found,
            Err(CallError::NotFound) => WorkloadRead::Missing.into(),
            Err(error) => WorkloadFound::from(WorkloadRead::Refused(error.to_string())),
        }),
        Request::Quorum { .. } => Outcome::Quorum(match content!(answer, Quorum) {
            Err(CallError::NotFound) => Ok(None),
            read => read.map(Some).map_err(sentence),
        }),
        Request::QuorumStatus(_) => Outcome::QuorumStatus(content!(answer, Quorum)),
        Request::Tokens { .. } => Outcome::Tokens(content!(answer, Tokens).map_err(sentence)),
        Request::Secret { .. } => Outcome::Secret(content!(answer, Secret)),
        Request::ClusterUid => Outcome::ClusterUid(content!(answer, ClusterUid).map_err(sentence)),
        Request::LeaseChange(_) => {
            Outcome::LeaseChange(content!(answer, LeaseChange).unwrap_or_else(|error| match error {
                CallError::Conflict | CallError::NotFound => Changed::Outdated,
                CallError::Refused(why) => Changed::Refused(why),
                CallError::Unanswered(_) | CallError::Unreadable(_) | CallError::Panicked(_) => Changed::Unanswered,
            }))
        }
        Request::Event { .. } | Request::Probe => Outcome::Event,
    };
    (judged, outcome)
}

fn judge_status(mut judged: Judged, answer: Answer) -> (Judged, Outcome) {
    let outcome = match content!(answer, Lease) {
        Ok(lease) => StatusOutcome::Written(lease),
        Err(CallError::Conflict) => StatusOutcome::Conflict,
        Err(CallError::NotFound) => {
            judged.verdict = UNTIL_THE_WATCH_SHOWS_IT;
            StatusOutcome::Gone
        }
        Err(CallError::Refused(why)) => StatusOutcome::Refused(why),
        // The write may have succeeded, so the lease is read before the next one.
        Err(error) => StatusOutcome::Unanswered(error.unknown().unwrap_or_default()),
    };
    (judged, Outcome::LeaseStatus(outcome))
}

/// The answer to a role write that the API server carried out, refused or did not answer.
fn judge_role(lease: &str, write: &RoleWrite, answer: Result<Stored, CallError>) -> RoleAnswer {
    match answer {
        Ok(Stored { asked, object, managed_fields }) => {
            let altered = object.as_ref().and_then(|object| write.altered_in(lease, object.object()));
            let altered = altered.map(|altered| {
                let manager = manager_of(&managed_fields, &altered.path);
                Box::new(Altered { manager, ..altered })
            });
            let outcome = RoleOutcome::Written(altered);
            // After a dry run, the object is another one than the answer shows.
            let object = object.filter(|_| !write.dry_run);
            RoleAnswer { outcome, found: object.map(|object| Found::Here(asked, object)) }
        }
        Err(CallError::Refused(why)) => RoleAnswer { outcome: RoleOutcome::Refused(why), found: None },
        Err(error) => {
            let outcome = RoleOutcome::Unanswered(error.unknown().unwrap_or_default());
            RoleAnswer { outcome, found: None }
        }
    }
}

/// The answer to the read of the object after a role write that found it in another version, or not at all: another replica
/// may lead meanwhile.
fn judge_second(write: &RoleWrite, first: &CallError, answer: Result<Stored, CallError>) -> (Judged, RoleAnswer) {
    let conflict = |found| RoleAnswer { outcome: RoleOutcome::Conflict, found };
    match found(answer, &write.uid, write.workload) {
        // An admission webhook may refuse with any status code.
        Ok(Found::Here(_, found)) if *found.object().resource_version == write.version => {
            let why = format!(
                "{} {} is unchanged although its resource version matches, and the API server refuses the change: {first}",
                write.workload.map_or("pod", WorkloadKind::as_str),
                write.pod
            );
            let judged = Judged::of(Some(&CallError::Refused(why.clone())));
            (judged, RoleAnswer { outcome: RoleOutcome::Refused(why), found: None })
        }
        Ok(gone @ Found::Gone(_)) => (Judged::of(None), RoleAnswer { outcome: RoleOutcome::Gone, found: Some(gone) }),
        Ok(found) => (Judged { verdict: Verdict::Raced, problem: None }, conflict(Some(found))),
        // The last request counts: it is what says whether the API server answers.
        Err(error @ CallError::Unanswered(_)) => (Judged::of(Some(&error)), conflict(None)),
        Err(_) => (Judged::of(Some(&CallError::Conflict)), conflict(None)),
    }
}

fn found(answer: Result<Stored, CallError>, uid: &str, workload: Option<WorkloadKind>) -> Result<Found, CallError> {
    match answer {
        Ok(Stored { asked, object: Some(object), .. }) if object.object().uid == uid => Ok(Found::Here(asked, object)),
        Ok(_) | Err(CallError::NotFound) => Ok(Found::Gone(workload)),
        Err(error) => Err(error),
    }
}
