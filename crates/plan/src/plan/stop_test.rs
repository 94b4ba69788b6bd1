//! Whether the operator can stop what holds a term that a request is to end: `spec.suspend`, a handover, or a RedisQuorum that does not
//! allow the namespace any more.
//!
//! If the term ended and its holder could not be stopped, another pod or cluster would start beside it. So the API server is asked
//! first: it gets the write that stops the holder as a dry run, which passes authorization, policies and webhooks, and stores nothing.

use super::event::RoleOutcome;

/// What is known about the stop of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StopTest {
    /// There is no answer yet.
    Due,
    Accepted,
    /// Why the API server would not store it.
    Refused(Box<str>),
}

/// The object whose term is to end, and the test of its stop. Boxed: most leases have none.
#[derive(Clone, Debug, Default)]
pub(super) struct StopTests(Option<Box<(String, StopTest)>>);

impl StopTests {
    /// `uid` names what holds the term that is to end, if it may run; it is empty while that is not known: then it may run.
    pub fn follow(&mut self, uid: Option<&str>) {
        match uid {
            None => self.0 = None,
            Some(uid) if self.0.as_ref().is_some_and(|test| test.0 == uid) => {}
            Some(uid) => self.0 = Some(Box::new((uid.to_owned(), StopTest::Due))),
        }
    }

    /// The test cannot be made now, and why.
    pub fn is_impossible(&mut self, why: &str) {
        self.0 = Some(Box::new((String::new(), StopTest::Refused(why.into()))));
    }

    pub fn result(&self) -> Option<&StopTest> {
        self.0.as_ref().map(|test| &test.1)
    }

    /// Whether the stop of this object is to be tested. After a refusal the test is repeated.
    pub fn is_due(&self, uid: &str) -> bool {
        self.0.as_ref().is_some_and(|test| test.0 == uid && test.1 != StopTest::Accepted)
    }

    /// Takes the answer to a dry run.
    pub fn answered(&mut self, uid: &str, outcome: &RoleOutcome) {
        let Some(test) = self.0.as_mut().filter(|test| test.0 == uid) else { return };
        let refused = match outcome {
            RoleOutcome::Written(None) => return test.1 = StopTest::Accepted,
            RoleOutcome::Written(Some(altered)) => altered.to_string(),
            RoleOutcome::Refused(why) | RoleOutcome::AtFault(why) => why.clone(),
            // The API server finds a conflict before it asks policies and webhooks.
            RoleOutcome::Conflict | RoleOutcome::Gone | RoleOutcome::Unanswered(_) | RoleOutcome::Withdrawn => return,
        };
        test.1 = StopTest::Refused(refused.into());
    }
}
