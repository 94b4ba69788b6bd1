//! The admission of a node: one machine per node decides when the node may vote.
//!
//! A server that was restarted, flushed or replaced by its replica may have lost leases that a process still treats as
//! held. It gets a *ticket* instead of a vote, and is admitted by that ticket when the longest lease has passed. There is
//! no shorter way: neither a long uptime nor an empty server proves that nothing was lost. A changed ticket means that
//! the server lost its data again, and the wait starts again.

mod event;

pub use event::{Call, Effect, Input, Standing};

use alloc::collections::VecDeque;

use crate::marker::{Marker, Membership, RunId};
use crate::op::Token;
use crate::quorum::Quorum;
use crate::rules::Rules;
use crate::seed::{Fences, Unseedable, seed};
use crate::time::{Beat, Drift, Millis, Time};

/// The configuration of an admission.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// The configuration under which the node votes.
    pub membership: Membership,
    /// The quorum of the node.
    pub quorum: Quorum,
    /// Whether statuses show the tokens of leases. A process without Kubernetes has none.
    pub has_statuses: bool,
    /// The longest lease that is allowed on this quorum.
    pub longest_lease: Millis,
    /// How far the rates of two clocks may differ.
    pub drift: Drift,
    /// When the marker is read while nothing else happens.
    pub heartbeat: Beat,
}

impl Config {
    /// Time from the first sight of a ticket to the request that admits by it.
    pub fn quarantine(&self) -> Millis {
        self.drift.most(self.longest_lease)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Wait {
    ticket: Marker,
    since: Time,
}

/// How far the counter is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Seeding {
    /// The statuses are not listed yet.
    Listing,
    /// The fences are being read. A watch of the statuses can be behind.
    Listed,
    /// The statuses are listed again, because the fences did not suffice.
    ListingAgain,
    /// The fences are being read, and all statuses were read after the wait, or there are none.
    Current,
}

/// What is known about a step of the node's clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Clock {
    Steady,
    /// It may have stepped. With the first marker that was read since.
    Doubted(Option<Marker>),
    /// It has stepped, and no ticket has replaced this marker, which was read since. A marker that replaced it is younger than the
    /// step, so it stays: another process may wait by it.
    Stepped(Option<Marker>),
}

/// The admission of one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Admission {
    config: Config,
    pub(crate) rules: Rules,
    run_id: Option<RunId>,
    standing: Standing,
    /// It outlives a connection: the same ticket seen again proves that nothing was lost in between.
    wait: Option<Wait>,
    clock: Clock,
    /// When the clock of the node was last known to have stepped.
    stepped_at: Time,
    /// Observes and admits without an answer. Only the answer to the last one is the present marker.
    outstanding: u8,
    seeding: Option<Seeding>,
    look_again: Time,
    /// Only the planted bug `SeedBeforeWait` fills it.
    #[cfg(feature = "check")]
    early_seed: Option<Token>,
    effects: VecDeque<Effect>,
}

impl Admission {
    /// The machine of a node without a connection.
    pub const fn new(config: Config) -> Self {
        Self {
            config,
            rules: Rules::NONE,
            run_id: None,
            standing: Standing::Offline,
            wait: None,
            clock: Clock::Steady,
            stepped_at: Time(0),
            outstanding: 0,
            seeding: None,
            look_again: Time(0),
            #[cfg(feature = "check")]
            early_seed: None,
            effects: VecDeque::new(),
        }
    }

    /// Whether the node has a vote, and if not, why.
    pub const fn standing(&self) -> &Standing {
        &self.standing
    }

    /// The marker that every vote of this connection must find, while the node is admitted.
    pub fn marker(&self) -> Option<Marker> {
        let admitted = matches!(self.standing, Standing::Admitted);
        self.run_id.clone().filter(|_| admitted).map(|run_id| self.config.membership.marker(run_id))
    }

    /// The next effect to carry out.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When the machine needs [`Input::Wake`], if no other input comes before.
    pub fn next_deadline(&self) -> Option<Time> {
        if self.run_id.is_none() || self.outstanding > 0 {
            return None;
        }
        match self.standing {
            Standing::Quarantined { until } => Some(until.min(self.look_again)),
            _ => Some(self.look_again),
        }
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::Connected(run_id) => {
                self.run_id = Some(run_id);
                self.outstanding = 0;
                // All keys from before the step have ended, and this process has counted no vote of the node since.
                if matches!(self.clock, Clock::Stepped(_)) && now >= self.stepped_at + self.config.quarantine() {
                    self.clock = Clock::Steady;
                }
                self.observe();
            }
            Input::Disconnected => {
                self.run_id = None;
                self.outstanding = 0;
                self.set_standing(Standing::Offline);
            }
            Input::Observed(marker) => {
                self.outstanding = self.outstanding.saturating_sub(1);
                if self.outstanding > 0 {
                    return;
                }
                self.observed_by_clock(now, marker);
            }
            Input::Doubted => {
                if self.clock == Clock::Steady {
                    self.clock = Clock::Doubted(None);
                }
                self.observe();
            }
            Input::Steady => {
                if matches!(self.clock, Clock::Doubted(_)) {
                    self.clock = Clock::Steady;
                    self.observe();
                }
            }
            Input::Stepped => {
                self.stepped_at = now;
                let seen = match core::mem::replace(&mut self.clock, Clock::Steady) {
                    Clock::Doubted(seen) | Clock::Stepped(seen) => seen,
                    Clock::Steady => None,
                };
                self.stepped(seen);
            }
            Input::NotAdmitted => {
                if self.standing == Standing::Admitted {
                    self.observe();
                }
            }
            Input::StatusesListed => match self.seeding {
                Some(Seeding::Listing) => self.ask_for(Seeding::Listed),
                Some(Seeding::ListingAgain) => self.ask_for(Seeding::Current),
                _ => {}
            },
            // An answer to an earlier read may come while the statuses are listed, which may show a greater token.
            Input::Fences(_) if !self.reads_fences() => {}
            Input::Fences(Some(fences)) => self.seeded(now, &fences),
            Input::Fences(None) => (self.seeding, self.look_again) = (None, self.config.heartbeat.after(now)),
            Input::Wake => self.wake(now),
        }
    }

    /// Whether this server votes under another configuration. Only its processes may replace that marker, even after a
    /// clock step.
    fn is_foreign(&self, marker: &Marker) -> bool {
        let Some(run_id) = &self.run_id else { return false };
        let admitted = matches!(marker, Marker::Admitted { .. }) && marker.run_id() == run_id;
        admitted && *marker != self.config.membership.marker(run_id.clone())
    }

    /// Takes a marker, unless a step of the node's clock is to be handled first.
    fn observed_by_clock(&mut self, now: Time, marker: Marker) {
        match &mut self.clock {
            Clock::Doubted(seen @ None) => {
                *seen = Some(marker);
                // A short doubt is not shown.
                self.look_again = now + self.config.heartbeat.every;
            }
            Clock::Doubted(Some(_)) => {
                self.look_again = self.config.heartbeat.after(now);
                self.set_standing(Standing::Doubted);
            }
            Clock::Stepped(None) => self.stepped(Some(marker)),
            Clock::Steady | Clock::Stepped(Some(_)) => {
                self.clock = Clock::Steady;
                self.observed(now, marker);
            }
        }
    }

    /// The clock has stepped. `seen` is the first marker that was read since: if it is a ticket, the wait by it covers the step.
    fn stepped(&mut self, seen: Option<Marker>) {
        let waits = matches!(seen, Some(Marker::Wait { .. })) && !breaks!(self.rules, TicketOfOthersReplaced);
        let is_covered = waits || seen.as_ref().is_some_and(|marker| self.is_foreign(marker));
        self.clock = if is_covered { Clock::Steady } else { Clock::Stepped(seen) };
        self.observe();
    }

    fn set_standing(&mut self, standing: Standing) {
        if self.standing != standing {
            self.standing = standing.clone();
            self.effects.push_back(Effect::Changed(standing));
        }
    }

    /// Takes the vote away, and then reads the marker again.
    fn observe(&mut self) {
        let Some(run_id) = self.run_id.clone() else { return };
        self.set_standing(Standing::Observing);
        self.ask(run_id);
    }

    fn ask(&mut self, run_id: RunId) {
        self.outstanding = self.outstanding.saturating_add(1);
        let stepped = match &self.clock {
            Clock::Stepped(seen) => seen.clone(),
            Clock::Steady | Clock::Doubted(_) => None,
        };
        self.effects.push_back(Effect::Call(Call::Observe { run_id, stepped }));
    }

    fn observed(&mut self, now: Time, marker: Marker) {
        let Some(run_id) = self.run_id.clone() else { return };
        self.look_again = self.config.heartbeat.after(now);
        if marker == self.config.membership.marker(run_id.clone()) {
            self.wait = None;
            self.set_standing(Standing::Admitted);
        } else if *marker.run_id() != run_id {
            // Observe answers a marker that names the run id in the request: the server of this connection changed.
            self.set_standing(Standing::Observing);
        } else if self.is_foreign(&marker) {
            self.wait = None;
            self.set_standing(Standing::Mismatch(marker));
        } else {
            self.waiting(now, marker);
        }
    }

    fn waiting(&mut self, now: Time, ticket: Marker) {
        let same =
            breaks!(self.rules, TicketNotCompared) || self.wait.as_ref().is_some_and(|wait| wait.ticket == ticket);
        let since = self.wait.as_ref().filter(|_| same).map_or(now, |wait| wait.since);
        let first_sight = self.wait.is_none();
        self.wait = Some(Wait { ticket, since });
        let mut until = since + self.config.quarantine();
        if breaks!(self.rules, NoQuarantine) {
            until = since;
        }
        if breaks!(self.rules, WaitOneShort) {
            until = until - Millis(1);
        }
        if now >= until {
            self.begin_seeding(now);
        } else {
            if first_sight && breaks!(self.rules, SeedBeforeWait) {
                self.effects.push_back(Effect::ReadFences);
            }
            self.set_standing(Standing::Quarantined { until });
        }
    }

    /// Begins to compute the counter, unless that has begun for the same wait.
    fn begin_seeding(&mut self, now: Time) {
        if self.seeding.is_some() && matches!(self.standing, Standing::Seeding(_)) {
            return;
        }
        self.look_again = self.config.heartbeat.after(now);
        if !matches!(self.standing, Standing::Seeding(_)) {
            self.set_standing(Standing::Seeding(None));
        }
        #[cfg(feature = "check")]
        if let Some(seed) = self.early_seed.take() {
            return self.admit(seed);
        }
        self.ask_for(if self.config.has_statuses { Seeding::Listing } else { Seeding::Current });
    }

    fn ask_for(&mut self, seeding: Seeding) {
        self.seeding = Some(seeding);
        self.effects.push_back(match seeding {
            Seeding::Listing => Effect::ListStatuses { again: false },
            Seeding::ListingAgain => Effect::ListStatuses { again: true },
            Seeding::Listed | Seeding::Current => Effect::ReadFences,
        });
    }

    fn reads_fences(&self) -> bool {
        matches!(self.seeding, Some(Seeding::Listed | Seeding::Current)) || breaks!(self.rules, SeedBeforeWait)
    }

    fn seeded(&mut self, now: Time, fences: &Fences) {
        let is_current = self.seeding.take() != Some(Seeding::Listed);
        let seed = seed(self.rules, self.config.quorum, fences, is_current);
        if !matches!(self.standing, Standing::Seeding(_)) {
            #[cfg(feature = "check")]
            if breaks!(self.rules, SeedBeforeWait) {
                self.early_seed = seed.ok();
            }
            return;
        }
        match seed {
            Ok(seed) => self.admit(seed),
            Err(Unseedable::StatusesUnread) => self.ask_for(Seeding::ListingAgain),
            Err(reason) => {
                self.look_again = self.config.heartbeat.after(now);
                self.set_standing(Standing::Seeding(Some(reason)));
            }
        }
    }

    fn admit(&mut self, seed: Token) {
        let (Some(run_id), Some(wait)) = (self.run_id.clone(), &self.wait) else { return };
        self.outstanding = self.outstanding.saturating_add(1);
        let (ticket, marker) = (wait.ticket.clone(), self.config.membership.marker(run_id));
        self.effects.push_back(Effect::Call(Call::Admit { ticket, marker, seed }));
    }

    fn wake(&mut self, now: Time) {
        if self.next_deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        match self.standing {
            Standing::Quarantined { until } if now >= until => self.begin_seeding(now),
            // While the statuses are being listed, which can take as long as the API server is away, or cannot be used, another
            // process may admit the node.
            _ => {
                if let Some(run_id) = self.run_id.clone() {
                    self.ask(run_id);
                }
            }
        }
    }
}

#[cfg(feature = "check")]
#[path = "../check/admission_rebase.rs"]
mod rebase;

#[cfg(test)]
pub(crate) mod tests;
