//! The driver of leases: when their attempts and rounds begin, so that thousands of them do not start at the same instant, and
//! how a lease retires and closes.
//!
//! Each lease has a [`Driver`], which stands above its [`Lease`] machine and takes all commands for it. The drivers of one shard
//! share their [`Turns`]. A driver starts no attempt without a request: one [`Command::Want`] is one attempt. It limits the rate
//! of rounds and repeated attempts after an outage, and of joins after the return of a node, and it spreads the renewals over
//! their interval.
//!
//! Its caller passes on the answers of the nodes under the [`LeaseId`] of the request, gives [`Input::Wake`] at
//! [`Driver::next_deadline`], and carries out the effects.

mod attempts;
#[cfg(feature = "check")]
#[path = "../check/driver.rs"]
mod check;
mod event;
mod ids;
mod proposals;
#[cfg(test)]
pub(crate) mod tests;
mod turns;

pub use event::{Effect, Input};
pub use ids::{Ids, LeaseId};
pub use proposals::Proposals;
pub use turns::{Turns, next_phase};

use alloc::vec::Vec;

use crate::lease::{self, Config, Lease, OnDeadline, Renewal, Round, Standing, View};
pub use crate::lease::{Command, Fresh};
use crate::op::{Attempt, Holder, Vote};
use crate::quorum::Quorum;
use crate::time::{Millis, Time};
use attempts::{Attempts, Requested};

/// How long the keeper waits after a grant that came too late for the acquire, and after the grant of a join, before the round
/// of extension that proves it. A term that ends before needs no join: it costs half as much as the acquire. Nodes that grant
/// within this time share the round.
const JOIN_DELAY: Millis = Millis(20);

/// How long a closed lease waits for the answers to its releases.
const LAST_ANSWERS: Millis = Millis(2000);

/// An effect that is not the lease's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Due {
    /// The view once more.
    View,
    Released,
}

/// The release of the last term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Releasing {
    attempt: Attempt,
    /// Its round, after the first request was sent.
    round: Option<Round>,
    /// How many nodes have deleted the keys, or set their end.
    nodes: usize,
}

/// What all leases on a quorum must learn when the nodes that vote change.
pub fn returned(quorum: Quorum, before: &[bool], after: &[bool]) -> impl Iterator<Item = Input> + use<> {
    let has_majority = |votes: &[bool]| votes.iter().filter(|votes| **votes).count() >= quorum.majority();
    let majority = (has_majority(after) && !has_majority(before)).then_some(Input::MajorityReturned);
    let node = after.iter().zip(before).any(|(after, before)| *after && !before).then_some(Input::NodeReturned);
    majority.into_iter().chain(node)
}

/// The leases that an input for all leases on a quorum concerns, the most urgent first.
pub fn concerned<'a>(
    now: Time,
    input: &Input,
    drivers: impl Iterator<Item = &'a Driver>,
    turns: &mut Turns,
) -> Vec<LeaseId> {
    let urgency = |driver: &Driver| match input {
        Input::MajorityReturned => driver.recovers(now),
        Input::NodeReturned => driver.is_taken().then_some(now),
        _ => Some(now),
    };
    if *input == Input::MajorityReturned {
        turns.restart(now);
    }
    let mut concerned: Vec<_> = drivers.filter_map(|driver| Some((urgency(driver)?, driver.id))).collect();
    concerned.sort_by_key(|(urgency, _)| *urgency);
    concerned.into_iter().map(|(_, id)| id).collect()
}

/// The driver of one lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Driver {
    id: LeaseId,
    lease: Lease,
    /// The time of the last input.
    now: Time,
    /// What the configuration says about a term that cannot be kept.
    on_deadline: OnDeadline,
    /// See [`Driver::set_may_end`].
    may_end: bool,
    /// How long no attempt begins after a jump of this process's clock.
    jump_wait: Millis,
    attempts: Attempts,
    /// Requests without a vote so far.
    outstanding: u32,
    /// It ends when its last key has expired.
    retiring: bool,
    /// It ends when its requests are answered, at this time at the latest.
    closing: Option<Time>,
    /// The release before it closes.
    releasing: Option<Releasing>,
    due: Option<Due>,
    #[cfg(feature = "check")]
    late: crate::check::Late,
}

impl Driver {
    /// The driver of a lease that holds no term and makes no attempt. After a jump of this process's clock no attempt begins for
    /// `jump_wait`: the longest lease of the quorum, unless no attempt for these keys uses a TTL as long as that.
    pub fn new(id: LeaseId, config: Config, jump_wait: Millis, turns: &mut Turns) -> Self {
        turns.add(config.renew_interval);
        let on_deadline = config.deadline;
        let mut lease = Lease::new(config);
        lease.delay_joins(JOIN_DELAY);
        Self {
            id,
            lease,
            now: Time(0),
            on_deadline,
            may_end: true,
            jump_wait,
            attempts: Attempts::default(),
            outstanding: 0,
            retiring: false,
            closing: None,
            releasing: None,
            due: None,
            #[cfg(feature = "check")]
            late: crate::check::Late::default(),
        }
    }

    /// Gives its share of the turns back, when the lease is dropped.
    pub fn leave(self, turns: &mut Turns) {
        turns.remove(self.renew_interval());
    }

    /// The number of the lease.
    pub const fn id(&self) -> LeaseId {
        self.id
    }

    /// The machine of the lease.
    pub const fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Whether it was closed, and waits for its last answers.
    pub const fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// When it needs [`Input::Wake`], if no other input comes before.
    pub fn next_deadline(&self) -> Option<Time> {
        self.closing.or_else(|| self.lease.next_deadline())
    }

    /// Whether this process may end terms by its own clock, from now on; otherwise [`OnDeadline::Unconfirm`] applies. Call it
    /// before each input if the right depends on the time: a process that was paused may have lost it.
    pub const fn set_may_end(&mut self, may_end: bool) {
        self.may_end = may_end;
        self.lease.set_on_deadline(self.deadline());
    }

    const fn deadline(&self) -> OnDeadline {
        if self.may_end { self.on_deadline } else { OnDeadline::Unconfirm }
    }

    /// Takes one input, if it is for this lease and not for an earlier one in the same slot.
    pub fn handle(&mut self, now: Time, to: LeaseId, input: Input, turns: &mut Turns) {
        if to != self.id && !breaks!(self.lease.rules(), AnotherIncarnation) {
            return;
        }
        self.now = now;
        #[cfg(feature = "check")]
        self.late.expect(matches!(input, Input::Command(Command::Want(_), _)));
        match input {
            Input::Vote { round, node, vote } => {
                self.outstanding = self.outstanding.saturating_sub(1);
                self.count_release(round, &vote);
                if self.closing.is_none() {
                    self.lease.handle(now, lease::Input::Vote { round, node, vote });
                }
            }
            _ if self.closing.is_some_and(|until| now >= until) => self.outstanding = 0,
            _ if self.closing.is_some() => {}
            Input::Command(command, fresh) => self.command(now, command, fresh, turns),
            Input::NodeReturned => self.node_returned(now, turns),
            Input::MajorityReturned if self.recovers(now).is_some() => {
                self.command(now, Command::TryNow, None, turns);
            }
            Input::ClockJumped => self.begin(now, lease::Input::ClockJumped, turns),
            Input::MajorityReturned | Input::Wake => self.wake(now, turns),
        }
    }

    /// The next effect to carry out.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        if let Some(effect) = self.poll_lease() {
            self.schedule(&effect);
            return Some(Effect::Lease(effect));
        }
        match self.due.take() {
            Some(Due::View) => Some(Effect::Lease(lease::Effect::Changed(self.view().clone()))),
            Some(Due::Released) => Some(Effect::Released),
            None => self.has_ended().then_some(Effect::Ended),
        }
    }

    #[cfg(not(feature = "check"))]
    fn poll_lease(&mut self) -> Option<lease::Effect> {
        self.lease.poll_effect()
    }

    fn has_ended(&self) -> bool {
        match self.closing {
            Some(_) => self.outstanding == 0,
            None => self.retiring && self.lease.is_quiet(),
        }
    }

    fn command(&mut self, now: Time, mut command: Command, fresh: Option<Fresh>, turns: &mut Turns) {
        match &mut command {
            Command::Want(holder) if !self.may_attempt(now, holder, fresh, turns) => return,
            Command::Adopt(_) | Command::AdoptOverrun(_) => return self.begin(now, command.into(), turns),
            Command::TryNow if self.running().is_some() => return self.begin(now, command.into(), turns),
            Command::Release { .. } => {
                // The lease may have noticed a loss that the program does not know.
                let ending = self.view().ending.as_ref().map(|ending| ending.id.attempt);
                let attempt = self.running().or(ending);
                self.releasing = attempt.map(|attempt| Releasing { attempt, round: None, nodes: 0 });
            }
            Command::Configure(config) => {
                turns.remove(self.renew_interval());
                turns.add(config.renew_interval);
                self.on_deadline = config.deadline;
                config.deadline = self.deadline();
            }
            Command::Retire => self.retiring = true,
            Command::End { term, proof } => self.attempts.term_ends(now, &mut self.lease, term, *proof),
            _ => {}
        }
        let (wants, closes) =
            (matches!(command, Command::Want(_)), matches!(command, Command::Release { .. } | Command::Close));
        self.lease.handle(now, lease::Input::Command(command, fresh));
        if wants && self.lease.next_attempt_at().is_some() {
            self.lease.handle(now, Command::Forget.into());
        }
        if closes {
            self.closing = Some(now + self.lease.config().command_timeout.min(LAST_ANSWERS));
        }
    }

    /// Notices when a majority has deleted the keys, or set their end.
    fn count_release(&mut self, round: Round, vote: &Vote) {
        let Some(releasing) = &mut self.releasing else { return };
        if releasing.round == Some(round) && matches!(vote, Vote::Released(_)) {
            releasing.nodes += 1;
            if releasing.nodes == self.lease.config().quorum.majority() {
                self.due = Some(Due::Released);
            }
        }
    }

    fn node_returned(&mut self, now: Time, turns: &mut Turns) {
        if self.is_taken() {
            // Without a next round, one is under way.
            let turn = self.lease.next_round_at().map_or(Some(now), |due| turns.join(now, due));
            if let Some(ask_by) = turn {
                return self.lease.handle(now, lease::Input::NodeReturned { ask_by });
            }
        }
        self.wake(now, turns);
    }

    /// What the time asks for. After a pause of the process a term may have ended, whichever input comes first.
    fn wake(&mut self, now: Time, turns: &mut Turns) {
        if self.lease.next_round_at().is_some_and(|due| due <= now && self.lease.held_until() < due) {
            self.take_turn(now, turns);
        }
        self.lease.handle(now, lease::Input::Wake);
    }

    /// Whether a term runs or an attempt is under way.
    pub fn is_taken(&self) -> bool {
        !matches!(self.lease.view().standing, Standing::Idle)
    }

    /// Whether the return of a majority of nodes helps: to renew a term whose last renewal failed, or then to make an attempt
    /// that waits for its back-off. The earliest of these times is the most urgent.
    fn recovers(&self, now: Time) -> Option<Time> {
        let view = self.lease.view();
        if let Some(term) = view.standing.term() {
            return (term.failed_rounds > 0).then(|| term.stop_at.unwrap_or(Time(0)));
        }
        // After a refusal, the keys are free only at the time that the refusal names.
        let waits = view.refused_by.is_none() && view.retry_at.is_some_and(|retry_at| retry_at > now);
        waits.then_some(Time(u64::MAX))
    }

    /// Whether a requested attempt begins now: see [`Attempts`].
    fn may_attempt(&mut self, now: Time, holder: &Holder, fresh: Option<Fresh>, turns: &mut Turns) -> bool {
        let jumped_at = fresh.and_then(|fresh| fresh.jumped_at);
        let void_until = jumped_at.map(|at| at + self.lease.config().drift.most(self.jump_wait));
        if let Some(until) = void_until.filter(|until| now < *until && !self.lease.is_taken_for(holder)) {
            self.lease.hold(until);
            self.lease.handle(now, lease::Input::Wake);
            return false;
        }
        match self.attempts.request(now, &mut self.lease, holder, || turns.attempt(now)) {
            Requested::Dropped => return false,
            Requested::Waits => {
                self.lease.handle(now, lease::Input::Wake);
                return false;
            }
            Requested::Starts => {}
            Requested::StartsWithoutTurn => turns.attempt_started(now),
        }
        if fresh.is_none() {
            self.due = Some(Due::View);
        }
        fresh.is_some()
    }

    /// Handles an input that makes a round due. The round starts at its reserved time.
    fn begin(&mut self, now: Time, input: lease::Input, turns: &mut Turns) {
        self.lease.hold(Time(u64::MAX));
        self.lease.handle(now, input);
        self.take_turn(now, turns);
        self.lease.handle(now, lease::Input::Wake);
    }

    fn take_turn(&mut self, now: Time, turns: &mut Turns) {
        let due = self.lease.next_round_at().filter(|due| *due <= now);
        let turn = due.map(|_| turns.round(now, self.latest_round(now)));
        self.lease.hold(turn.unwrap_or_default());
    }

    /// How long the next round may wait so that two more fit before the deadline if it fails. The state of an unconfirmed
    /// term is unknown, so its round waits for one retry interval at most.
    fn latest_round(&self, now: Time) -> Time {
        let config = self.lease.config();
        let pace = config.retry_pace();
        let stop_at = self.lease.view().standing.term().and_then(|term| term.stop_at);
        stop_at.map_or(now + pace, |stop_at| stop_at - (pace + pace + config.command_timeout))
    }

    /// What the driver does about an effect of its lease.
    fn schedule(&mut self, effect: &lease::Effect) {
        match effect {
            lease::Effect::Send { round, op, .. } => {
                self.outstanding += 1;
                if let Some(Releasing { attempt, round: first @ None, .. }) = &mut self.releasing
                    && op.is_release()
                    && op.attempt() == *attempt
                {
                    *first = Some(*round);
                }
            }
            // The view stays at Publishing until the caller has published the term.
            lease::Effect::Publish(id) => {
                // A turn that the attempt of another holder waits for is not for this term.
                self.lease.hold(Time(0));
                self.lease.renew_by(self.next_phase(self.now, id.attempt));
            }
            lease::Effect::Renewed(renewal) => self.spread(renewal),
            lease::Effect::Changed(_) | lease::Effect::Broken(_) => {}
        }
    }

    /// Schedules the next round at the phase of the term, or a retry together with others that are due then.
    fn spread(&mut self, renewal: &Renewal) {
        let at = match (renewal, self.running(), self.lease.next_round_at()) {
            (Renewal::Success { .. }, ..) if breaks!(self.lease.rules(), PhaseNotRestored) => return,
            (Renewal::Success { took, .. }, Some(attempt), _) => self.next_phase(self.now - *took, attempt),
            (_, Some(_), Some(next)) => turns::gathered(next, self.renew_interval(), self.now),
            _ => return,
        };
        self.lease.renew_by(at);
    }

    fn next_phase(&self, began: Time, attempt: Attempt) -> Time {
        next_phase(began, self.renew_interval(), attempt)
    }

    const fn renew_interval(&self) -> Millis {
        self.lease.config().renew_interval
    }

    /// The attempt of the running term.
    fn running(&self) -> Option<Attempt> {
        self.view().standing.term().map(|term| term.id.attempt)
    }

    /// The view of the lease.
    pub const fn view(&self) -> &View {
        self.lease.view()
    }
}
