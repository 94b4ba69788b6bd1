//! What an answer of the API server means for the queue and for the caller.

use futures::future::BoxFuture;
use redislease_lock::contain::contained_task;

use super::call::{Call, Done};
use crate::operator::kube_api::CallError;
use crate::plan::StatusOutcome;
use crate::plan::calls::Verdict;

/// The result of sending a call.
pub(super) struct Sent {
    pub judged: Judged,
    pub finish: Finish,
}

/// What the queue and the log need to know about an answer.
pub(super) struct Judged {
    pub verdict: Verdict,
    /// Why it was refused or not answered.
    pub problem: Option<String>,
}

/// How a call is completed.
pub(super) enum Finish {
    /// Pass the outcome to the caller.
    PassOn(Box<dyn FnOnce() + Send>),
    /// An unanswered read: send it again.
    Again(Call),
    /// A successful role write, which changed the pod from the first resource version to the second.
    Moved(Option<String>, Option<String>, Box<dyn FnOnce() + Send>),
}

pub(super) fn classify<T>(answer: &Result<T, CallError>) -> Judged {
    let verdict = match answer {
        Ok(_) | Err(CallError::NotFound) => Verdict::Done,
        Err(CallError::Conflict) => Verdict::Conflict,
        Err(CallError::Unanswered(_)) => Verdict::Unanswered,
        Err(CallError::Refused(_) | CallError::Unreadable(_)) => Verdict::Refused,
        Err(CallError::Panicked(_)) => Verdict::Panicked,
    };
    let has_problem = !matches!(verdict, Verdict::Done | Verdict::Conflict);
    let problem = answer.as_ref().err().filter(|_| has_problem).map(ToString::to_string);
    Judged { verdict, problem }
}

/// What the answer to a status write means for the queue, and for the lease if it failed.
pub(super) fn judge_status<T>(written: &Result<T, CallError>) -> (Judged, Option<StatusOutcome>) {
    let mut judged = classify(written);
    let failure = written.as_ref().err().map(|error| match error {
        CallError::Conflict => StatusOutcome::Conflict,
        CallError::NotFound => {
            // Until the watch shows the deletion, the lease writes again with each turn: the second time, it waits.
            judged.verdict = Verdict::Conflict;
            StatusOutcome::Gone
        }
        CallError::Refused(why) => StatusOutcome::Refused(why.clone()),
        // The write may have succeeded, so the lease is read before the next one.
        error => StatusOutcome::Unanswered(error.unknown().unwrap_or_default()),
    });
    (judged, failure)
}

/// Runs the work of one call. A panic in it, such as one while an object of a tenant is read, fails this call only.
pub(super) async fn guarded<T>(work: BoxFuture<'_, Result<T, CallError>>) -> Result<T, CallError> {
    contained_task(work).await?
}

/// As [`guarded`], for work that says more than its result: `unknown` says the rest after a panic.
pub(super) async fn guarded_with<A>(
    work: BoxFuture<'_, (Result<(), CallError>, A)>,
    unknown: impl FnOnce(String) -> A,
) -> (Result<(), CallError>, A) {
    contained_task(work).await.unwrap_or_else(|panicked| {
        let error = CallError::from(panicked);
        let why = error.to_string();
        (Err(error), unknown(why))
    })
}

pub(super) fn pass_on<T: Send + 'static>(answer: Result<T, CallError>, done: Done<Result<T, CallError>>) -> Sent {
    let judged = classify(&answer);
    Sent { judged, finish: Finish::PassOn(Box::new(move || done(answer))) }
}

/// Repeats an unanswered read. A refusal is passed on as a sentence.
pub(super) fn pass_on_or_repeat<T: Send + 'static>(
    read: Result<T, CallError>,
    done: Done<Result<T, String>>,
    again: impl FnOnce(Done<Result<T, String>>) -> Call,
) -> Sent {
    let judged = classify(&read);
    let finish = if judged.verdict == Verdict::Unanswered {
        Finish::Again(again(done))
    } else {
        Finish::PassOn(Box::new(move || done(read.map_err(|error| error.to_string()))))
    };
    Sent { judged, finish }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::plan::RoleOutcome;

    #[tokio::test]
    async fn a_panic_in_a_call_is_an_error_of_this_call() {
        let read = guarded(async { (1 > 2).then_some(7).ok_or_else(|| panic!("planned by the test")) }.boxed()).await;
        let judged = classify(&read);
        assert_eq!(judged.verdict, Verdict::Panicked);
        assert_eq!(judged.problem.as_deref(), Some("a defect of RedisLease: panic: planned by the test"));
        let written = async { (1 > 2).then_some((Ok(()), RoleOutcome::Written)).expect("planned by the test") };
        let (written, outcome) = guarded_with(written.boxed(), RoleOutcome::Unanswered).await;
        // The write may have been sent.
        assert!(matches!((written, outcome), (Err(CallError::Panicked(_)), RoleOutcome::Unanswered(_))));
        assert!(matches!(guarded(async { Ok(7) }.boxed()).await, Ok(7)));
    }

    #[test]
    fn a_status_write_to_a_lease_that_does_not_exist_is_not_repeated_at_once() {
        let written = |written: Result<(), CallError>| {
            let (judged, failure) = judge_status(&written);
            (judged.verdict, failure)
        };
        assert_eq!(written(Ok(())), (Verdict::Done, None));
        assert_eq!(written(Err(CallError::NotFound)), (Verdict::Conflict, Some(StatusOutcome::Gone)));
        assert_eq!(written(Err(CallError::Conflict)), (Verdict::Conflict, Some(StatusOutcome::Conflict)));
        let refused = Err(CallError::Refused("why".into()));
        assert_eq!(written(refused), (Verdict::Refused, Some(StatusOutcome::Refused("why".into()))));
        let unanswered = written(Err(CallError::Unanswered("late".into())));
        assert_eq!(unanswered, (Verdict::Unanswered, Some(StatusOutcome::Unanswered("late".into()))));
    }
}
