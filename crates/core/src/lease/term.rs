//! Keeping a term: strict extension, and the join of nodes that do not hold it.
//!
//! A round that reaches a majority of exact `t:attempt:token` continues the term, whoever sends it and whatever the
//! time: keys that are all still there were never free in between. A node without the value is *joined*: it grants
//! again, then a whole extension round that **began after that grant was answered** must succeed, and only then is the
//! grant confirmed. Confirmed earlier, it could complete a majority across a gap in which somebody else held.

use alloc::vec;
use alloc::vec::Vec;

use crate::ballot::{Ballot, Ballots};
use crate::lease::ending::Ending;
use crate::lease::{Config, Effect, EndReason, Lease, Publication, Renewal, Round, Standing, TermId, TermView};
use crate::mutant::Mutant;
use crate::op::{Attempt, Grant, Op, Stage, Stages, Vote};
use crate::quorum::{Decision, Node};
use crate::time::{Millis, Time};

/// What one node is known to hold of the term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Site {
    /// The term's value, or nothing is known to the contrary.
    Holding,
    /// Not the term's value.
    Missing,
    /// An acquire is out.
    Joining { round: Round, give_up_at: Time },
    /// It granted. An extension round numbered `after` or later began after the answer.
    Granted { grant: Grant, after: Round },
    /// A confirm is out.
    Confirming { round: Round, give_up_at: Time },
}

/// Who may know of the term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Claim {
    /// The publication was sent and is not answered.
    Publishing,
    /// The status names it and a majority confirmed it to this process.
    Held,
    /// The status names it. From `doubt_at` this process says that it cannot confirm it; when the status has `shown` so
    /// for one interval, and `ends_at` has come, the term is lost.
    Adopting { doubt_at: Time, ends_at: Time, overdue: bool, shown: Option<Time> },
}

/// One round of extension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Extension {
    pub round: Round,
    pub t0: Time,
    ttl: Millis,
    stop_budget: Millis,
    pub ballots: Ballots,
    pub outcome: Option<Decision>,
}

/// A running term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Term {
    pub id: TermId,
    pub claim: Claim,
    pub sites: Vec<Site>,
    pub valid_until: Option<Time>,
    pub stop_at: Option<Time>,
    pub extension: Option<Extension>,
    pub next_round_at: Time,
    pub failed_rounds: u32,
    /// The last instant at which a key of this term can stand.
    pub keys_until: Time,
}

impl Term {
    /// A term of our own, from round 2. `times`: start of round 1, end of validity, when to give up.
    pub fn acquired(
        config: &Config,
        id: TermId,
        sites: Vec<Site>,
        times: (Time, Time, Time),
        keys_until: Time,
    ) -> Self {
        let (t0, valid_until, stop_at) = times;
        let mut term = Self {
            id,
            claim: Claim::Publishing,
            sites,
            valid_until: Some(valid_until),
            stop_at: Some(stop_at),
            extension: None,
            next_round_at: t0 + config.renew_interval,
            failed_rounds: 0,
            keys_until,
        };
        term.prove_grants(t0);
        term
    }

    fn adopted(config: &Config, id: TermId, now: Time) -> Self {
        Self {
            id,
            claim: Claim::Adopting {
                doubt_at: now + config.renew_interval,
                ends_at: now + config.drift.most(config.ttl),
                overdue: false,
                shown: None,
            },
            sites: vec![Site::Holding; config.quorum.size()],
            valid_until: None,
            stop_at: None,
            extension: None,
            next_round_at: now,
            failed_rounds: 0,
            keys_until: now + config.drift.most(config.ttl),
        }
    }

    pub fn standing(&self) -> Standing {
        let view = TermView {
            id: self.id.clone(),
            valid_until: self.valid_until,
            stop_at: self.stop_at,
            failed_rounds: self.failed_rounds,
        };
        match self.claim {
            Claim::Publishing => Standing::Publishing(view),
            Claim::Held => Standing::Held(view),
            Claim::Adopting { overdue: false, .. } => Standing::Adopting(view),
            Claim::Adopting { overdue: true, .. } => Standing::Uncertain(view),
        }
    }

    /// A grant that no round has proven yet asks for one at `at`: until it is confirmed the term may stand on a bare
    /// majority, which the next fault would end.
    fn prove_grants(&mut self, at: Time) {
        if self.sites.iter().any(|site| matches!(site, Site::Granted { .. })) {
            self.next_round_at = self.next_round_at.min(at);
        }
    }

    /// After a round that failed, the next one begins now.
    pub fn try_now(&mut self, now: Time) {
        if self.failed_rounds > 0 {
            self.next_round_at = self.next_round_at.min(now);
        }
    }

    pub fn unsettled(&self) -> Option<&Extension> {
        self.extension.as_ref().filter(|extension| extension.outcome.is_none())
    }

    pub fn next_deadline(&self, config: &Config, held_until: Time) -> Time {
        let next_round_at = self.next_round_at.max(held_until);
        let round = self.unsettled().map_or(next_round_at, |extension| extension.t0 + config.command_timeout);
        let adoption = match self.claim {
            Claim::Adopting { doubt_at, overdue: false, .. } => Some(doubt_at),
            Claim::Adopting { ends_at, shown, .. } => shown.map(|shown| ends_at.max(shown + config.renew_interval)),
            Claim::Publishing | Claim::Held => None,
        };
        let stop_at = self.stop_at.filter(|_| config.mutant != Some(Mutant::NoLocalDeadline));
        [Some(round), adoption, stop_at].into_iter().flatten().min().unwrap_or(round)
    }
}

impl Lease {
    /// A term is adopted once: what this process runs or ends already, it knows better than the status.
    pub(super) fn adopt(&mut self, now: Time, id: TermId) {
        let known = self.ending.as_ref().is_some_and(|ending| ending.id.attempt == id.attempt);
        if self.term.is_some() || known {
            return;
        }
        self.abandon(now);
        self.wanted = None;
        self.term = Some(Term::adopted(&self.config, id, now));
    }

    /// Another process keeps the term that this one could not confirm: for one lease nothing is missed, and only then
    /// is there reason to doubt again.
    pub(super) fn kept_elsewhere(&mut self, now: Time, attempt: Attempt) {
        let lease = self.config.drift.most(self.config.ttl);
        if let Some(term) = self.term.as_mut().filter(|term| term.id.attempt == attempt)
            && let Claim::Adopting { .. } = term.claim
        {
            term.claim =
                Claim::Adopting { doubt_at: now + lease, ends_at: now + lease + lease, overdue: false, shown: None };
        }
    }

    /// Others have seen that this process cannot confirm the term, and may say that they can.
    pub(super) fn doubt_shown(&mut self, now: Time, attempt: Attempt) {
        if let Some(term) = self.term.as_mut().filter(|term| term.id.attempt == attempt)
            && let Claim::Adopting { overdue: true, shown, .. } = &mut term.claim
        {
            shown.get_or_insert(now);
        }
    }

    pub(super) fn published(&mut self, now: Time, attempt: Attempt, outcome: Publication) {
        let unknown_is_failure = self.is(Mutant::UnknownWriteReleased);
        let Some(term) = &mut self.term else { return };
        if term.id.attempt != attempt || term.claim != Claim::Publishing {
            return;
        }
        match outcome {
            Publication::Written => term.claim = Claim::Held,
            Publication::Unknown if unknown_is_failure => {
                let (id, until) = (term.id.clone(), term.keys_until);
                self.term = None;
                self.release_everywhere(now, id.attempt, Stages::Unpublished, until);
            }
            Publication::Unknown => {}
            Publication::NotWritten => {
                let id = term.id.clone();
                self.effects.push_back(Effect::Publish(id));
            }
            Publication::Superseded => self.give_up(now, EndReason::Superseded),
        }
    }

    pub(super) fn expire_term(&mut self, now: Time) {
        let watched = !self.is(Mutant::NoLocalDeadline);
        let Some(term) = &mut self.term else { return };
        if watched && term.stop_at.is_some_and(|stop_at| now >= stop_at) {
            if term.unsettled().is_some() {
                self.effects.push_back(Effect::Renewed(Renewal::Timeout));
            }
            self.give_up(now, EndReason::Deadline);
            return;
        }
        if let Claim::Adopting { doubt_at, ends_at, overdue, shown } = &mut term.claim {
            *overdue = *overdue || now >= *doubt_at;
            if shown.is_some_and(|shown| now >= (*ends_at).max(shown + self.config.renew_interval)) {
                self.give_up(now, EndReason::NeverConfirmed);
                return;
            }
        }
        if let Some(extension) = &mut term.extension
            && extension.outcome.is_none()
            && now >= extension.t0 + self.config.command_timeout
        {
            extension.ballots.close();
            self.settle(now, Renewal::Timeout);
        }
    }

    /// Begins the next round of extension when it is due and the last is settled.
    pub(super) fn advance_term(&mut self, now: Time) {
        let due = self.next_round_at().is_some_and(|at| now >= at.max(self.held_until));
        if !due {
            return;
        }
        let round = self.new_round();
        let (ttl, stop_budget, quorum) = (self.config.ttl, self.config.stop_budget, self.config.quorum);
        let give_up_at = now + self.config.command_timeout;
        let Some(term) = &mut self.term else { return };
        let ballots = Ballots::all(quorum);
        term.extension = Some(Extension { round, t0: now, ttl, stop_budget, ballots, outcome: None });
        term.keys_until = term.keys_until.max(give_up_at + self.config.drift.most(ttl));
        let (attempt, token) = (term.id.attempt, term.id.token);
        for node in quorum.nodes() {
            self.send(round, node, Op::Extend { attempt, token, ttl }, give_up_at);
        }
    }

    pub(super) fn term_vote(&mut self, now: Time, round: Round, node: Node, vote: Vote) {
        let answered = self.next_round;
        let pace = self.config.retry_pace();
        let at_once = self.is(Mutant::JoinConfirmedAtOnce);
        let abstention_is_no = self.is(Mutant::AbstentionIsNo);
        let Some(term) = &mut self.term else { return };
        let Some(site) = term.sites.get_mut(node.index()) else { return };
        if let Some(extension) = term.extension.as_mut().filter(|extension| extension.round == round) {
            let ballot = match &vote {
                Vote::Extended => Ballot::Yes,
                Vote::Miss(_) => Ballot::No,
                Vote::Abstained if abstention_is_no => Ballot::No,
                _ => Ballot::Unknown,
            };
            if extension.ballots.of(node) == Ballot::Outstanding {
                extension.ballots.set(node, ballot);
            }
            *site = site.after_extension(now, &vote, term.id.attempt);
            if extension.outcome.is_none() {
                self.settle(now, Renewal::NoQuorum);
            } else if extension.outcome == Some(Decision::Yes) {
                self.mend(now);
            }
            return;
        }
        match (*site, vote) {
            (Site::Joining { round: asked, .. }, vote) if asked == round => {
                *site = match vote {
                    Vote::Granted(grant) => Site::Granted { grant, after: answered },
                    _ => Site::Missing,
                };
                term.prove_grants(term.extension.as_ref().map_or(now, |extension| extension.t0 + pace));
                if at_once {
                    self.mend(now);
                }
            }
            (Site::Confirming { round: asked, .. }, vote) if asked == round => {
                *site = if matches!(vote, Vote::Confirmed { .. }) { Site::Holding } else { Site::Missing };
            }
            _ => {}
        }
    }

    /// Settles the round if its ballots allow; `silence` names what it was when no majority spoke.
    fn settle(&mut self, now: Time, silence: Renewal) {
        let Some(term) = &mut self.term else { return };
        let Some(extension) = &mut term.extension else { return };
        let mut decision = extension.ballots.decide(self.config.quorum);
        let from = if self.config.mutant == Some(Mutant::DeadlineFromReply) { now } else { extension.t0 };
        let valid_until = from + self.config.validity(extension.ttl);
        let stop_at = valid_until - extension.stop_budget;
        if decision == Decision::Yes && now >= stop_at {
            decision = Decision::Unknown;
        }
        if decision == Decision::Open {
            return;
        }
        extension.outcome = Some(decision);
        let t0 = extension.t0;
        match decision {
            Decision::Yes => {
                term.valid_until = Some(valid_until);
                term.stop_at = Some(stop_at);
                term.failed_rounds = 0;
                term.next_round_at = t0 + self.config.renew_interval;
                if matches!(term.claim, Claim::Adopting { .. }) {
                    term.claim = Claim::Held;
                }
                let (took, left) = (now.since(t0), valid_until.since(now));
                self.effects.push_back(Effect::Renewed(Renewal::Success { took, left }));
                self.mend(now);
                let pace = self.config.retry_pace();
                if let Some(term) = &mut self.term {
                    term.prove_grants(t0 + pace);
                }
            }
            Decision::No => {
                self.effects.push_back(Effect::Renewed(Renewal::Lost));
                self.give_up(now, EndReason::Misses);
            }
            Decision::Unknown | Decision::Open => {
                term.failed_rounds = term.failed_rounds.saturating_add(1);
                term.next_round_at = t0 + self.config.retry_pace();
                self.effects.push_back(Effect::Renewed(silence));
            }
        }
    }

    /// After a round that succeeded: the next step of the join of every node that does not hold the term.
    fn mend(&mut self, now: Time) {
        let any_round = self.is(Mutant::JoinConfirmedAtOnce) || self.is(Mutant::JoinConfirmedByEarlierRound);
        let mut next_round = self.next_round;
        let give_up_at = now + self.config.command_timeout;
        let ttl = self.config.ttl;
        let Some(term) = &mut self.term else { return };
        let proven = term.extension.as_ref().map(|extension| extension.round);
        let TermId { attempt, token, holder } = term.id.clone();
        for (node, site) in self.config.quorum.nodes().zip(&mut term.sites) {
            let op = match *site {
                Site::Missing => {
                    *site = Site::Joining { round: next_round, give_up_at };
                    term.keys_until = term.keys_until.max(give_up_at + self.config.drift.most(ttl));
                    Op::Acquire { attempt, ttl, holder: holder.clone() }
                }
                Site::Granted { grant, after } if any_round || proven.is_some_and(|round| round >= after) => {
                    *site = Site::Confirming { round: next_round, give_up_at };
                    Op::Confirm { attempt, grant, token }
                }
                _ => continue,
            };
            self.effects.push_back(Effect::Send { round: next_round, node, op, give_up_at });
            next_round = Round(next_round.0.wrapping_add(1));
        }
        self.next_round = next_round;
    }

    /// This process stops believing, for a reason of its own.
    pub(super) fn give_up(&mut self, now: Time, reason: EndReason) {
        let Some(term) = self.term.take() else { return };
        if reason != EndReason::Superseded && self.is(Mutant::ReleaseOnLocalDeadline) {
            self.release_everywhere(now, term.id.attempt, Stages::All, term.keys_until);
            return;
        }
        self.seal(now, term, reason);
    }

    pub(super) fn end(&mut self, now: Time, id: TermId, proof: bool) {
        self.wanted = None;
        let Some(term) = self.term.take_if(|term| term.id.attempt == id.attempt) else {
            self.end_known(now, id, proof);
            return;
        };
        if proof {
            self.show();
            self.release_everywhere(now, term.id.attempt, Stages::All, term.keys_until);
            self.not_before = now;
        } else {
            self.seal(now, term, EndReason::Decided);
        }
    }

    fn seal(&mut self, now: Time, term: Term, reason: EndReason) {
        let valid_until = term.valid_until.unwrap_or(term.keys_until);
        self.ending = Some(Ending::new(&self.config, now, term.id, reason, valid_until, term.keys_until));
        // Whoever watches learns that it is over before any node does.
        if !self.is(Mutant::ShownLast) {
            self.show();
        }
    }
}

impl Site {
    /// What an answer to an extension says about the node.
    fn after_extension(self, now: Time, vote: &Vote, attempt: Attempt) -> Self {
        match vote {
            Vote::Extended => Self::Holding,
            Vote::Miss(value) => {
                let still_granted = |grant: Grant| {
                    value.as_ref().is_some_and(|value| {
                        value.stage == Stage::Pending && value.attempt == attempt && value.number == grant.0
                    })
                };
                match self {
                    Self::Granted { grant, .. } if still_granted(grant) => self,
                    Self::Joining { give_up_at, .. } | Self::Confirming { give_up_at, .. } if now < give_up_at => self,
                    _ => Self::Missing,
                }
            }
            _ => self,
        }
    }
}
