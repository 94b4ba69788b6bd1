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
use crate::lease::{
    Config, Effect, EndReason, LATE_WAKE, Lease, OnDeadline, Publication, Renewal, Round, Standing, TermId, TermView,
};
use crate::op::{Attempt, Grant, Op, Stage, Stages, Vote};
use crate::quorum::{Decision, Node};
use crate::time::{Millis, Time};

/// What one node is known to hold of the term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Site {
    /// The term's value, or nothing is known to the contrary.
    Holding,
    /// Not the term's value, or no answer to the last step of a join. It is asked for a grant after the next round
    /// that succeeds, so at the pace of renewals: a node that does not answer gets no more requests than one that does.
    Missing,
    /// It answered, and refused to grant or to confirm: another attempt's value stands there, often for an instant
    /// only. It is asked for a grant at `again_at`, which is sooner than the next renewal.
    Refused { again_at: Time },
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

impl Claim {
    /// Nothing is known of the term but that the status names it.
    fn unconfirmed(config: &Config, now: Time) -> Self {
        let (doubt_at, ends_at) = (now + config.renew_interval, now + config.drift.most(config.ttl));
        Self::Adopting { doubt_at, ends_at, overdue: false, shown: None }
    }
}

/// One round of extension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Extension {
    pub round: Round,
    pub t0: Time,
    /// Until when the holder may be believed in if the round succeeds.
    pub valid_until: Time,
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
            claim: Claim::unconfirmed(config, now),
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

    /// When the next node that refused is asked again. A term that is not confirmed, or whose last round failed, joins
    /// no node: if it is lost, the grant would block that node for one TTL.
    fn next_join_at(&self) -> Option<Time> {
        let again_at = |site: &Site| match site {
            Site::Refused { again_at } => Some(*again_at),
            _ => None,
        };
        let confirmed = self.failed_rounds == 0 && !matches!(self.claim, Claim::Adopting { .. });
        self.sites.iter().filter_map(again_at).min().filter(|_| confirmed)
    }

    /// After a round that failed, the next one begins now.
    pub fn try_now(&mut self, now: Time) {
        if self.failed_rounds > 0 {
            self.next_round_at = self.next_round_at.min(now);
        }
    }

    /// Goes on as after a restart: a strict extension decides whether the term still runs.
    fn doubt(&mut self, config: &Config, now: Time) {
        self.claim = Claim::unconfirmed(config, now);
        self.valid_until = None;
        self.stop_at = None;
        self.next_round_at = self.next_round_at.min(now);
        // Another process may have extended it at any time until now.
        self.keys_until = self.keys_until.max(now + config.drift.most(config.ttl));
    }

    /// When an unconfirmed term is given up.
    fn lost_at(&self, config: &Config) -> Option<Time> {
        match self.claim {
            Claim::Adopting { ends_at, shown, .. } if config.deadline == OnDeadline::Seal => {
                shown.map(|shown| ends_at.max(shown + config.renew_interval))
            }
            _ => None,
        }
    }

    pub fn unsettled(&self) -> Option<&Extension> {
        self.extension.as_ref().filter(|extension| extension.outcome.is_none())
    }
}

impl Lease {
    /// When the term asks to be woken.
    pub(super) fn term_deadline(&self) -> Option<Time> {
        let term = self.term.as_ref()?;
        let round = match term.unsettled() {
            Some(extension) => extension.t0 + self.config.command_timeout,
            None => term.next_round_at.max(self.held_until),
        };
        let adoption = match term.claim {
            Claim::Adopting { doubt_at, overdue: false, .. } => Some(doubt_at),
            Claim::Adopting { .. } | Claim::Publishing | Claim::Held => term.lost_at(&self.config),
        };
        let stop_at = term.stop_at.filter(|_| !breaks!(self.rules, NoLocalDeadline));
        [Some(round), adoption, stop_at, term.next_join_at()].into_iter().flatten().min()
    }

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
        let Some(term) = &mut self.term else { return };
        if term.id.attempt != attempt || term.claim != Claim::Publishing {
            return;
        }
        match outcome {
            Publication::Written => term.claim = Claim::Held,
            #[cfg(feature = "check")]
            Publication::Unknown if breaks!(self.rules, UnknownWriteReleased) => self.release_unpublished(now),
            Publication::Unknown => {}
            Publication::NotWritten => {
                let id = term.id.clone();
                self.effects.push_back(Effect::Publish(id));
            }
            Publication::Superseded => self.give_up(now, EndReason::Superseded),
        }
    }

    pub(super) fn expire_term(&mut self, now: Time) {
        let watched = !breaks!(self.rules, NoLocalDeadline);
        let Some(term) = &mut self.term else { return };
        if let Some(stop_at) = term.stop_at.filter(|&stop_at| watched && now >= stop_at) {
            // The status need not name a term whose publication is not answered: nobody else can keep it.
            let others_may_keep = term.claim == Claim::Held;
            let is_late = now.since(stop_at) > LATE_WAKE && !breaks!(self.rules, SealOnLateWake);
            if others_may_keep && (is_late || self.config.deadline == OnDeadline::Doubt) {
                self.doubt(now);
            } else {
                if term.unsettled().is_some() {
                    self.effects.push_back(Effect::Renewed(Renewal::Timeout));
                }
                self.give_up(now, EndReason::Deadline);
                return;
            }
        }
        let Some(term) = &mut self.term else { return };
        if let Claim::Adopting { doubt_at, overdue, .. } = &mut term.claim {
            *overdue = *overdue || now >= *doubt_at;
        }
        if let Some(lost_at) = term.lost_at(&self.config).filter(|&lost_at| now >= lost_at) {
            if now.since(lost_at) <= LATE_WAKE {
                self.give_up(now, EndReason::NeverConfirmed);
                return;
            }
            term.doubt(&self.config, now);
        }
        let Some(term) = &mut self.term else { return };
        if let Some(extension) = &mut term.extension
            && extension.outcome.is_none()
            && now >= extension.t0 + self.config.command_timeout
        {
            extension.ballots.close();
            self.settle(now, Renewal::Timeout);
        }
    }

    /// Begins what is due: joins, and the next round of extension when the last is settled.
    pub(super) fn advance_term(&mut self, now: Time) {
        if self.term.as_ref().and_then(Term::next_join_at).is_some_and(|at| now >= at) {
            self.join(now, |site| matches!(site, Site::Refused { again_at } if now >= *again_at));
        }
        let due = self.next_round_at().is_some_and(|at| now >= at.max(self.held_until));
        if !due {
            return;
        }
        let round = self.new_round();
        let (ttl, stop_budget, quorum) = (self.config.ttl, self.config.stop_budget, self.config.quorum);
        let valid_until = now + self.validity(ttl);
        let give_up_at = now + self.config.command_timeout;
        let Some(term) = &mut self.term else { return };
        let ballots = Ballots::all(quorum);
        term.extension = Some(Extension { round, t0: now, valid_until, stop_budget, ballots, outcome: None });
        term.keys_until = term.keys_until.max(give_up_at + self.config.drift.most(ttl));
        let (attempt, token) = (term.id.attempt, term.id.token);
        for node in quorum.nodes() {
            self.send(round, node, Op::Extend { attempt, token, ttl }, give_up_at);
        }
    }

    pub(super) fn term_vote(&mut self, now: Time, round: Round, node: Node, vote: Vote) {
        let answered = self.next_round;
        let pace = self.config.retry_pace();
        let at_once = breaks!(self.rules, JoinConfirmedAtOnce);
        let abstention_is_no = breaks!(self.rules, AbstentionIsNo);
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
                    Vote::Refused { .. } => Site::Refused { again_at: now + pace },
                    _ => Site::Missing,
                };
                term.prove_grants(term.extension.as_ref().map_or(now, |extension| extension.t0 + pace));
                if at_once {
                    self.mend(now);
                }
            }
            (Site::Confirming { round: asked, .. }, vote) if asked == round => {
                *site = match vote {
                    Vote::Confirmed { .. } => Site::Holding,
                    Vote::Miss(_) => Site::Refused { again_at: now + pace },
                    _ => Site::Missing,
                };
            }
            _ => {}
        }
    }

    /// Settles the round if its ballots allow; `silence` names what it was when no majority spoke.
    fn settle(&mut self, now: Time, silence: Renewal) {
        let Some(term) = &mut self.term else { return };
        let Some(extension) = &mut term.extension else { return };
        let mut decision = extension.ballots.decide(self.config.quorum);
        let mut valid_until = extension.valid_until;
        if breaks!(self.rules, DeadlineFromReply) {
            valid_until = now + valid_until.since(extension.t0);
        }
        if breaks!(self.rules, ConfigureInFlight) {
            valid_until = extension.t0 + self.config.drift.least(self.config.ttl);
        }
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
        let any_round = breaks!(self.rules, JoinConfirmedAtOnce | JoinConfirmedByEarlierRound);
        let proven = self.term.as_ref().and_then(|term| term.extension.as_ref()).map(|extension| extension.round);
        self.join(now, |site| match site {
            Site::Missing => true,
            Site::Granted { after, .. } => any_round || proven.is_some_and(|round| round >= *after),
            _ => false,
        });
    }

    /// Takes the next step of the join, an acquire or a confirm, of each node that is `due`.
    fn join(&mut self, now: Time, due: impl Fn(&Site) -> bool) {
        let mut round = self.next_round;
        let give_up_at = now + self.config.command_timeout;
        let ttl = self.config.ttl;
        let Some(term) = &mut self.term else { return };
        let TermId { attempt, token, holder } = term.id.clone();
        for (node, site) in self.config.quorum.nodes().zip(&mut term.sites).filter(|(_, site)| due(site)) {
            let op = if let Site::Granted { grant, .. } = *site {
                *site = Site::Confirming { round, give_up_at };
                Op::Confirm { attempt, grant, token }
            } else {
                *site = Site::Joining { round, give_up_at };
                term.keys_until = term.keys_until.max(give_up_at + self.config.drift.most(ttl));
                Op::Acquire { attempt, ttl, holder: holder.clone() }
            };
            self.effects.push_back(Effect::Send { round, node, op, give_up_at });
            round = Round(round.0.wrapping_add(1));
        }
        self.next_round = round;
    }

    /// This process stops believing in a term that another may keep.
    fn doubt(&mut self, now: Time) {
        let Some(term) = &mut self.term else { return };
        term.doubt(&self.config, now);
        if !breaks!(self.rules, ShownLast) {
            self.show();
        }
    }

    /// This process stops believing, for a reason of its own.
    pub(super) fn give_up(&mut self, now: Time, reason: EndReason) {
        let Some(term) = self.term.take() else { return };
        if reason != EndReason::Superseded && breaks!(self.rules, ReleaseOnLocalDeadline) {
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
        if !breaks!(self.rules, ShownLast) {
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
                    // It was asked already.
                    Self::Refused { .. } => self,
                    Self::Joining { give_up_at, .. } | Self::Confirming { give_up_at, .. } if now < give_up_at => self,
                    _ => Self::Missing,
                }
            }
            _ => self,
        }
    }
}
