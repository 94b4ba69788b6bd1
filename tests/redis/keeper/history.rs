//! What the observer of a lease has seen.

use std::iter;
use std::sync::{Arc, Mutex, MutexGuard};

use redislease_core::lease::{EndReason, Renewal, Standing, TermView, View};
use redislease_core::op::Attempt;
use redislease_core::time::{Millis, Time};
use redislease_lock::clock;
use redislease_lock::keeper::Observer;

/// The events of a lease's observer, with their times.
#[derive(Default)]
pub struct Observations {
    pub views: Vec<(Time, View)>,
    renewals: Vec<(Time, Renewal)>,
}

/// How a term was lost.
#[derive(Debug)]
pub struct Loss {
    pub at: Time,
    /// Its last view.
    pub term: TermView,
    pub reason: EndReason,
}

#[derive(Clone, Default)]
pub struct History(Arc<Mutex<Observations>>);

impl History {
    pub fn observations(&self) -> MutexGuard<'_, Observations> {
        self.0.lock().unwrap()
    }

    /// The events, one per line.
    pub fn story(&self) -> String {
        let observed = self.observations();
        let views = observed.views.iter().map(|(at, view)| (*at, format!("{view:?}")));
        let renewals = observed.renewals.iter().map(|(at, renewal)| (*at, format!("{renewal:?}")));
        let mut lines: Vec<(Time, String)> = views.chain(renewals).collect();
        lines.sort_by_key(|(at, _)| *at);
        lines.iter().map(|(at, line)| format!("{} {line}\n", at.0)).collect()
    }

    /// The times of the successful renewal rounds.
    pub fn renewed(&self) -> Vec<Time> {
        let observed = self.observations();
        observed.renewals.iter().filter(|(_, how)| matches!(how, Renewal::Success { .. })).map(|(at, _)| *at).collect()
    }

    /// The longest time from `since` until now without a successful renewal round.
    pub fn longest_pause(&self, since: Time) -> Millis {
        let renewed = self.renewed().into_iter().filter(|at| *at >= since);
        let times: Vec<Time> = iter::once(since).chain(renewed).chain([clock::now()]).collect();
        times.windows(2).map(|two| two[1].since(two[0])).max().unwrap_or_default()
    }

    /// The first view of the term of `attempt`.
    fn first(&self, attempt: Attempt) -> Option<(Time, TermView)> {
        self.observations().views.iter().find_map(|(at, view)| match &view.standing {
            Standing::Publishing(term) if term.id.attempt == attempt => Some((*at, term.clone())),
            _ => None,
        })
    }

    /// When `attempt` became a term.
    pub fn taken_at(&self, attempt: Attempt) -> Option<Time> {
        self.first(attempt).map(|(at, _)| at)
    }

    /// When `attempt` was first observed (no earlier than its start), when it became a term, and the term.
    pub fn taking(&self, attempt: Attempt) -> (Time, Time, TermView) {
        let acquiring = |view: &View| matches!(view.standing, Standing::Acquiring(other, _) if other == attempt);
        let began = self.observations().views.iter().find(|(_, view)| acquiring(view)).map(|(at, _)| *at);
        let (Some(began), Some((taken, term))) = (began, self.first(attempt)) else {
            panic!("{attempt} was not taken:\n{}", self.story())
        };
        (began, taken, term)
    }

    /// The attempts, in order of their start.
    pub fn attempts(&self) -> Vec<Attempt> {
        let mut attempts: Vec<Attempt> = Vec::new();
        for (_, view) in &self.observations().views {
            if let Standing::Acquiring(attempt, _) = view.standing
                && attempts.last() != Some(&attempt)
            {
                attempts.push(attempt);
            }
        }
        attempts
    }

    /// The first running term that was lost.
    pub fn loss(&self) -> Option<Loss> {
        let observed = self.observations();
        let mut last: Option<TermView> = None;
        for (at, view) in &observed.views {
            if let (Some(term), None, Some(ending)) = (&last, view.standing.term(), &view.ending) {
                return Some(Loss { at: *at, term: term.clone(), reason: ending.reason });
            }
            last = view.standing.term().cloned();
        }
        None
    }
}

impl Observer for History {
    fn renewed(&self, renewal: &Renewal, _ttl_ms: u64) {
        self.observations().renewals.push((clock::now(), *renewal));
    }

    fn changed(&self, view: &View) {
        self.observations().views.push((clock::now(), view.clone()));
    }
}
