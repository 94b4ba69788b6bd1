//! The reconciler's state about its keeper machine.

use std::collections::VecDeque;
use std::sync::Arc;

use redislease_core::lease::{Config, Standing, TermId, View};
use redislease_core::op::{Attempt, Token};
use redislease_core::time::Time;

use super::facts::OpenQuorum;
use crate::election::HolderName;

/// How many attempts are recorded: the status names one of the last two.
const KNOWN_ATTEMPTS: usize = 16;

/// The keeper machine of one lease, from `Open` to its end.
#[derive(Clone, Debug)]
pub(super) struct KeeperLink {
    /// The quorum it was opened on; `None` if the nodes are unknown.
    pub quorum: Option<Arc<OpenQuorum>>,
    /// The durations it uses.
    pub config: Config,
    /// Its last view.
    pub view: View,
    /// Attempts that this machine has run, adopted or ended. If the status names one of them, the machine's state is
    /// newer than the status.
    known_attempts: VecDeque<Attempt>,
    /// The last requested end, and whether with proof.
    requested_end: Option<(TermId, bool)>,
    /// The term that it was requested to adopt.
    pub requested_adoption: Option<Attempt>,
    /// When an attempt was requested that its view does not show yet.
    pub attempt_requested_at: Option<Time>,
    /// The pod of the last attempt.
    pub last_candidate: Option<String>,
    /// The last least token that was sent to it.
    pub floor: Token,
    /// The unconfirmed term, and when it is dropped if this process does not lead.
    pub unconfirmed: Option<(Attempt, Time)>,
    /// Whether it was requested to stop when the last key has expired.
    pub retiring: bool,
}

impl KeeperLink {
    pub fn new(quorum: Option<Arc<OpenQuorum>>, config: Config) -> Self {
        Self {
            quorum,
            config,
            view: View::default(),
            known_attempts: VecDeque::new(),
            requested_end: None,
            requested_adoption: None,
            attempt_requested_at: None,
            last_candidate: None,
            floor: Token(0),
            unconfirmed: None,
            retiring: false,
        }
    }

    pub fn show(&mut self, view: View) {
        let running = view.standing.term().map(|term| term.id.attempt);
        let ending = view.ending.as_ref().map(|ending| ending.id.attempt);
        for attempt in [running, ending].into_iter().flatten() {
            self.record(attempt);
        }
        self.attempt_requested_at = None;
        // While it runs another term, the machine ignores an adoption: it is requested again. A second one has no effect.
        if running != self.requested_adoption {
            self.requested_adoption = None;
        }
        self.view = view;
    }

    fn record(&mut self, attempt: Attempt) {
        if self.known_attempts.contains(&attempt) {
            return;
        }
        self.known_attempts.push_back(attempt);
        if self.known_attempts.len() > KNOWN_ATTEMPTS {
            self.known_attempts.pop_front();
        }
    }

    /// Whether this machine has run, adopted or ended the attempt.
    pub fn knows(&self, attempt: Attempt) -> bool {
        self.known_attempts.contains(&attempt)
    }

    /// Records that the end of a term is requested. Returns whether the request is new: it is sent once, and once more
    /// with proof.
    pub fn request_end(&mut self, term: &TermId, proof: bool) -> bool {
        let is_known = |(requested, proven): &(TermId, bool)| requested.attempt == term.attempt && (*proven || !proof);
        if self.requested_end.as_ref().is_some_and(is_known) {
            return false;
        }
        self.requested_end = Some((term.clone(), proof));
        self.record(term.attempt);
        true
    }

    /// The term of the last requested end.
    pub fn asked_to_end(&self) -> Option<&TermId> {
        self.requested_end.as_ref().map(|(term, _)| term)
    }

    pub fn was_asked_to_end(&self, attempt: Attempt) -> bool {
        self.asked_to_end().is_some_and(|term| term.attempt == attempt)
    }

    /// Whether the view is older than the last request to end its term: then the view must be ignored.
    pub fn is_behind(&self) -> bool {
        let Some((TermId { attempt, .. }, proof)) = &self.requested_end else { return false };
        let runs = self.view.standing.term().is_some_and(|term| term.id.attempt == *attempt);
        let ends = self.view.ending.as_ref().is_some_and(|ending| ending.id.attempt == *attempt);
        runs || (*proof && ends)
    }

    /// Whether no term is running, starting or ending.
    pub fn is_idle(&self) -> bool {
        matches!(self.view.standing, Standing::Idle) && self.view.ending.is_none()
    }

    /// The running term, in any standing.
    pub fn running(&self) -> Option<&TermId> {
        self.view.standing.term().map(|term| &term.id)
    }

    /// When an attempt would start at once; `None` during a term or an attempt.
    pub fn next_attempt_at(&self) -> Option<Time> {
        self.view.retry_at.or_else(|| matches!(self.view.standing, Standing::Idle).then_some(Time(0)))
    }
}

/// The holder of the running term, or else of the ending one.
pub(super) fn holder_of(view: &View) -> Option<HolderName> {
    let running = view.standing.term().map(|term| &term.id);
    let term = running.or_else(|| view.ending.as_ref().map(|ending| &ending.id))?;
    term.holder.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::{ending, held, term};
    use redislease_core::lease::EndReason;

    fn link() -> KeeperLink {
        KeeperLink::new(None, super::super::durations::longest(None))
    }

    #[test]
    fn an_end_is_requested_once_and_once_more_with_proof() {
        let mut link = link();
        assert!(link.request_end(&term(1, 7, "a"), false));
        assert!(!link.request_end(&term(1, 7, "a"), false));
        assert!(link.request_end(&term(1, 7, "a"), true));
        assert!(!link.request_end(&term(1, 7, "a"), false), "an end without proof adds nothing to one with proof");
        assert!(link.request_end(&term(2, 7, "a"), false));
    }

    #[test]
    fn a_view_that_still_runs_the_ended_term_is_behind() {
        let mut link = link();
        link.show(held(term(1, 7, "a")));
        assert!(!link.is_behind());
        link.request_end(&term(1, 7, "a"), false);
        assert!(link.is_behind());
        link.show(ending(term(1, 7, "a"), EndReason::Decided));
        assert!(!link.is_behind(), "it ends, as requested");
        link.request_end(&term(1, 7, "a"), true);
        assert!(link.is_behind(), "the machine has not handled the proof yet");
        link.show(View::default());
        assert!(!link.is_behind() && link.is_idle() && link.knows(Attempt(1)));
    }

    #[test]
    fn only_the_latest_attempts_are_recorded() {
        let mut link = link();
        for attempt in 0..40 {
            link.show(held(term(attempt, 7, "a")));
        }
        assert!(link.knows(Attempt(39)) && link.knows(Attempt(30)) && !link.knows(Attempt(3)));
    }
}
