//! The invariants of each machine of the core, and which terms a process treats as held.

use redislease_core::driver::{Command, Input, next_phase};
use redislease_core::invariants;
use redislease_core::lease::{Effect, EndReason, Renewal, Round, Standing, TermId, View};
use redislease_core::op::{Attempt, Op, Stage, Stored, Vote};
use redislease_core::quorum::Node;
use redislease_core::time::{Millis, Time};

use crate::api::objects::lease_of;
use crate::api::objects::{Keys, numbers, pod_of};
use crate::chaos::fault::Phase;
use crate::check::checker::{LOCK_HOLDER, Live};
use crate::check::coverage::Sight;
use crate::check::trace::Note;
use crate::operator::state::{LOCK, Machine};
use crate::redis::server::Server;
use crate::world::World;

impl Machine {
    /// The keys as bits.
    pub fn bits(&self) -> Keys {
        self.keys.iter().fold(0, |bits, key| bits | 1 << key)
    }

    /// Its phases, for the table of faults.
    pub fn phases(&self) -> impl Iterator<Item = Phase> {
        let main = match self.driver.view().standing {
            Standing::Acquiring(..) if self.seen.confirming => Some(Phase::Round2),
            Standing::Acquiring(..) => Some(Phase::Round1),
            Standing::Publishing(_) => Some(Phase::Publication),
            Standing::Held(_) if self.seen.renewing => Some(Phase::Renewing),
            Standing::Held(_) => Some(Phase::Held),
            _ => None,
        };
        main.into_iter().chain((self.seen.releasing > 0).then_some(Phase::Releasing))
    }

    /// The term that it runs.
    pub fn believed(&self) -> Option<Attempt> {
        self.driver.view().standing.term().map(|term| term.id.attempt)
    }

    /// The term that it runs, before an input.
    pub fn before(&mut self, input: &Input) -> Option<Attempt> {
        if !matches!(input, Input::Vote { .. } | Input::Wake) {
            self.seen.steady = 0;
        }
        self.believed().filter(|_| !self.seen.behind && !self.driver.is_closing())
    }

    pub fn after(&mut self, before: Option<Attempt>) {
        self.seen.behind = true;
        self.seen.ended = before.filter(|_| self.believed() != before).or(self.seen.ended);
    }
}

impl World {
    /// A machine gets a command. Returns whether it makes an attempt, and when it may.
    pub fn sees_command(&mut self, process: usize, serial: u64, command: &Command) -> (bool, Option<Time>) {
        self.plant_wish(process, serial, command);
        let Some(machine) = self.machine(process, serial) else { return (false, None) };
        let before = (machine.driver.is_taken(), machine.driver.view().retry_at);
        match command {
            Command::Forget | Command::Retire if machine.driver.is_taken() => {
                self.coverage.saw(Sight::ForgotDuringAttempt);
            }
            Command::Configure(_) if machine.seen.renewing => self.coverage.saw(Sight::ConfiguredDuringRound),
            _ => {}
        }
        before
    }

    /// An attempt was requested. Returns whether it started.
    pub fn sees_attempt(&mut self, process: usize, serial: u64, before: (bool, Option<Time>)) -> bool {
        let now = Time(self.local(process));
        let (taken, retry_at) = before;
        let starts = self.machine(process, serial).is_some_and(|machine| machine.driver.is_taken());
        if !taken && retry_at.is_some_and(|at| at > now) {
            self.coverage.saw(Sight::AttemptDropped);
        } else if !taken && !starts {
            self.coverage.saw(Sight::AttemptPaced);
        }
        starts && !taken
    }

    /// A machine gets a vote.
    pub fn counted(&mut self, process: usize, serial: u64, round: Round, node: Node, vote: &Vote) {
        let Some(machine) = self.machine(process, serial) else { return };
        let held = matches!(machine.driver.view().standing, Standing::Held(_));
        let (uid, place) = (machine.uid, machine.place);
        self.note(Note::Counted { process, uid, round, node: node.0, vote });
        if uid != LOCK {
            self.attempt_answered(process, (uid, place), node, vote);
        }
        if matches!(vote, Vote::Confirmed { .. }) && held {
            self.coverage.saw(Sight::JoinConfirmed);
        }
    }

    /// A majority has confirmed a term.
    fn completes(&mut self, process: usize, serial: u64, id: &TermId) {
        let Some(bits) = self.machine(process, serial).map(|machine| machine.bits()) else { return };
        if !self.check.published_only {
            self.check.completes(bits, id);
        }
        let now = Time(self.local(process));
        // A pause may hold back what a machine says: then the process treats the term as ended.
        if self.machine(process, serial).and_then(|machine| machine.stop_at()).is_some_and(|stop_at| now < stop_at) {
            self.program_completes(bits, id);
        }
    }

    /// After each input: checks the shared invariants, and that no term is held after its deadline.
    pub fn check_machine(&mut self, process: usize, serial: u64, now: Time) {
        let Some(machine) = self.machine(process, serial) else { return };
        let uid = machine.uid;
        // Nobody looks at a closed lease any more.
        let late = machine.stop_at().filter(|&stop_at| now >= stop_at && !machine.driver.is_closing());
        let broken = invariants::lease(machine.driver.view()).err();
        if let Some(violation) = broken {
            self.check.fail(format!("{violation} (lease {uid} of process {process})"));
        }
        if let Some(stop_at) = late {
            let text =
                format!("process {process} treats a term as held at {} although it ends at {}", now.0, stop_at.0);
            self.check.fail(text);
        }
    }

    /// A machine asks for an effect.
    pub fn sees_effect(&mut self, process: usize, uid: u32, serial: u64, effect: &Effect) {
        self.note(Note::Effect { process, uid, effect });
        self.shown_first(process, serial, effect);
        match effect {
            Effect::Send { round, op, .. } => self.before_sending(process, serial, *round, op),
            Effect::Publish(id) => self.completes(process, serial, id),
            Effect::Renewed(renewal) => self.renewed(process, serial, renewal),
            Effect::Changed(_) | Effect::Broken(_) => {}
        }
    }

    /// A round of renewal is over.
    fn renewed(&mut self, process: usize, serial: u64, renewal: &Renewal) {
        let Some(machine) = self.machine(process, serial) else { return };
        machine.seen.renewing = false;
        machine.seen.steady = if matches!(renewal, Renewal::Success { .. }) { machine.seen.steady + 1 } else { 0 };
    }

    /// I5: the view shows the end of a term before the machine sends a request because of it.
    fn shown_first(&mut self, process: usize, serial: u64, effect: &Effect) {
        let Some(machine) = self.machine(process, serial) else { return };
        let Some(attempt) = machine.seen.ended else { return };
        match effect {
            Effect::Changed(_) => machine.seen.ended = None,
            Effect::Send { .. } => self.check.fail(format!("I5: the end of {attempt:?} is shown after {effect:?}")),
            _ => {}
        }
    }

    fn before_sending(&mut self, process: usize, serial: u64, round: Round, op: &Op) {
        let Some(machine) = self.machine(process, serial) else { return };
        if let Op::Acquire { ttl, .. } | Op::Extend { ttl, .. } = op {
            machine.seen.longest_ttl = machine.seen.longest_ttl.max(*ttl);
        }
        // The requests of a round may be repeated. Its first ones come before those of the rounds that began later.
        if machine.seen.rounds.last().is_none_or(|last| round > *last) {
            machine.seen.rounds.push(round);
        } else if machine.seen.rounds.binary_search(&round).is_err() {
            let last = machine.seen.rounds.last().copied();
            return self.check.fail(format!("the {op:?} of {round:?} is sent after the requests of {last:?}"));
        }
        let acquiring = matches!(machine.driver.view().standing, Standing::Acquiring(..));
        match op {
            Op::Acquire { attempt, .. } if acquiring => {
                machine.seen.confirming = false;
                if machine.seen.began.replace(*attempt) != Some(*attempt) {
                    let (bits, uid) = (machine.bits(), machine.uid);
                    self.check.begins(bits, *attempt, lease_of(uid));
                }
            }
            Op::Confirm { .. } if acquiring => machine.seen.confirming = true,
            Op::Extend { .. } => machine.seen.renewing = true,
            _ => {}
        }
    }

    /// Without a disturbance every term is renewed at its phase: otherwise the renewals of many leases come together.
    pub fn terms_are_at_their_phases(&mut self) {
        let machines = self.processes.iter().flat_map(|process| &process.machines);
        let off = machines.filter(|machine| machine.seen.steady > 1).find_map(|machine| {
            let Standing::Held(term) = &machine.driver.view().standing else { return None };
            let (next, interval) =
                (machine.driver.lease().next_round_at()?, machine.driver.lease().config().renew_interval);
            let phase = next_phase(next - Millis(1), interval, term.id.attempt);
            (next != phase).then(|| format!("{:?} is renewed at {next:?} instead of {phase:?}", term.id))
        });
        if let Some(off) = off {
            self.check.fail(off);
        }
    }

    pub fn check_view(&mut self, process: usize, serial: u64, view: &View) {
        let Some(machine) = self.machine(process, serial) else { return };
        let (uid, bits, known) = (machine.uid, machine.bits(), machine.seen.missed);
        if uid == LOCK && !matches!(view.standing, Standing::Held(_)) {
            self.check.leads_no_more(process);
        }
        let Some(ending) = &view.ending else {
            if view.refused_by.is_some() {
                self.coverage.saw(Sight::Refused);
            }
            return;
        };
        if ending.sealed {
            self.coverage.saw(Sight::SealEffective);
        }
        self.coverage.saw(match ending.reason {
            EndReason::Misses => Sight::LostByMisses,
            EndReason::Deadline => Sight::LostByDeadline,
            EndReason::NeverConfirmed => Sight::AdoptionNeverConfirmed,
            EndReason::Superseded => Sight::Superseded,
            EndReason::Decided => Sight::EndDecided,
            EndReason::Defect => panic!("a machine broke an invariant"),
        });
        let lost = matches!(ending.reason, EndReason::Misses | EndReason::Deadline | EndReason::NeverConfirmed);
        if lost && uid != LOCK && self.swarm.programs == 0 && self.lost.insert((process, ending.id.attempt)) {
            self.loss_is_due(process, serial, uid, ending.id.attempt);
            // After enough answers that the keys are gone, no time is left to stop.
            if ending.reason != EndReason::Misses {
                self.stop_will_be_due(process, uid, &ending.id);
            }
        }
        if ending.reason == EndReason::Misses && known != Some(ending.id.attempt) {
            if let Some(machine) = self.machine(process, serial) {
                machine.seen.missed = Some(ending.id.attempt);
            }
            self.must_be_gone(bits, &ending.id);
        }
    }

    /// A term was dropped because nodes answered that they do not hold it. An unknown vote is no such answer.
    fn must_be_gone(&mut self, keys: Keys, id: &TermId) {
        let now = self.now;
        let holds = |server: &&Server| {
            let value = |key: u8| server.node.entry(&key, server.clock.millis(now)).map(|entry| &entry.value);
            let exact =
                |value: &Stored| (value.stage, value.attempt, value.number) == (Stage::Term, id.attempt, id.token.0);
            numbers(keys).all(|key| value(key).is_some_and(exact))
        };
        let holding = self.servers.iter().filter(|server| server.up).filter(holds).count();
        if keys != 0 && holding >= self.swarm.quorum.majority() {
            self.check
                .fail(format!("unknown was taken for no: {id:?} was given up as gone, and {holding} nodes hold it"));
        }
    }

    /// Reports to the checker until when this process treats the term as held, by its own clock.
    pub fn claim(&mut self, process: usize, serial: u64) {
        if self.swarm.programs > 0 {
            return self.claim_of_program(process, serial);
        }
        let Some(machine) = self.machine(process, serial) else { return };
        if std::mem::replace(&mut machine.seen.is_reported, true) {
            return;
        }
        let (uid, place, keys) = (machine.uid, machine.place, machine.bits());
        let Standing::Held(term) = &machine.driver.view().standing else { return };
        let (Some(valid_until), id) = (term.valid_until, term.id.clone()) else { return };
        let t0 = valid_until - machine.driver.lease().config().drift.least(machine.seen.longest_ttl);
        let until = self.belief_ends(process, t0, valid_until);
        let (pod, from) = (if uid == LOCK { LOCK_HOLDER } else { pod_of(&id) }, self.now);
        let (attempt, token, valid_until) = (id.attempt, id.token, valid_until.0);
        let claim = Live { process, keys, attempt, token, pod, from, until, valid_until };
        if uid == LOCK {
            // A replica leads for as long as its lock is valid.
            return self.check.leads(self.now, claim);
        }
        if self.check.published_only {
            self.check.completes(keys, &id);
        }
        let cluster = self.processes[process].cluster;
        let known = self.check.last.get(&(cluster, place)).map(|last| last.attempt);
        if known.is_some_and(|known| known != attempt) {
            self.coverage.saw(Sight::ReElection);
        }
        self.note(Note::Claim { process, attempt: attempt.0, token: token.0, until });
        self.check.claims(self.now, (cluster, place), claim);
    }
}
