//! The reference node: the scripts of a Redis node, written in Rust.
//!
//! The unit tests, the model checker and the simulator use it in place of a server. A test compares each of its answers
//! with that of a real server. It holds the keys of the protocol and nothing else.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use crate::check::Mutant;
use crate::marker::{Marker, RunId};
use crate::op::{Attempt, Grant, Holder, Op, Stage, Stages, Stored, Token, Vote};
use crate::time::Millis;
use crate::wire::Terms;
use crate::wire::replies::Value;

/// A value and the last millisecond of the node's clock at which it exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoredKey {
    /// What a script has stored in the key.
    pub value: Stored,
    /// The last millisecond, on the node's clock.
    pub ends: u64,
}

/// One Redis master. `K` is the type of the names of lock keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node<K> {
    /// The identity of this start of the server.
    pub run_id: RunId,
    /// The lock keys, including those that have ended and were not purged yet.
    pub keys: BTreeMap<K, StoredKey>,
    /// The counter. None if it was deleted, or never written.
    pub fence: Option<u64>,
    /// The marker, if there is one.
    pub marker: Option<Marker>,
    /// The counters of the planted bug [`Mutant::CounterPerLease`].
    pub fences: BTreeMap<K, u64>,
    /// The planted bug, if there is one.
    pub mutant: Option<Mutant>,
}

/// One call of a voting script.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Call<K> {
    /// The lease's keys.
    pub keys: Vec<K>,
    /// The marker that the node must have for its answer to count as a vote.
    pub marker: Marker,
    /// The last millisecond of the node's clock at which the call is not late.
    pub deadline: u64,
    /// What the node is asked to do to the keys of one lease.
    pub op: Op,
}

impl<K: Ord + Clone> Node<K> {
    /// An empty server.
    pub const fn new(run_id: RunId) -> Self {
        Self { run_id, keys: BTreeMap::new(), fence: None, marker: None, fences: BTreeMap::new(), mutant: None }
    }

    /// The entry of `key` at `now` on the node's clock.
    pub fn entry(&self, key: &K, now: u64) -> Option<&StoredKey> {
        self.keys.get(key).filter(|entry| now <= entry.ends)
    }

    fn ttl_left(&self, key: &K, now: u64) -> Millis {
        Millis(self.entry(key, now).map_or(0, |entry| entry.ends - now))
    }

    fn value(&self, key: &K, now: u64) -> Option<&Stored> {
        self.entry(key, now).map(|entry| &entry.value)
    }

    /// Removes the keys that have ended. A server does this at a time of its choice.
    pub fn purge(&mut self, now: u64) {
        self.keys.retain(|_, entry| now <= entry.ends);
    }

    /// Runs one call for all requests, at this Unix time in microseconds on the node's clock. Returns the reply of the script.
    pub fn run(&mut self, micros: u64, requests: &[(Arc<[K]>, Op)], terms: Option<&Terms>) -> Value {
        let now = micros / 1000;
        let mut parts = time(micros);
        let late = terms.is_none_or(|terms| now > terms.deadline);
        let extends = requests.iter().any(|(_, op)| op.is_extend());
        let ends = requests.iter().any(|(_, op)| op.is_end());
        let admitted = terms.is_some_and(|terms| self.is_admitted(&terms.marker, !ends && !extends));
        let word = match (ends, admitted) {
            (true, _) => "ends",
            (false, false) => "not_admitted",
            (false, true) if extends && late => "late",
            (false, true) => {
                if extends {
                    "extended"
                } else {
                    "votes"
                }
            }
        };
        parts.push(text(&word));
        if matches!(word, "not_admitted" | "late") {
            return Value::List(parts);
        }
        for (place, (keys, op)) in requests.iter().enumerate() {
            let answer = match op {
                Op::Seal { .. } if !admitted => text(&"not_admitted"),
                Op::Acquire { .. } if late => text(&"late"),
                op => match self.execute(now, keys, op) {
                    Vote::Extended => continue,
                    Vote::Miss(found) if extends => {
                        parts.push(number(place as u64 + 1));
                        found.as_ref().map_or(Value::Nil, text)
                    }
                    Vote::Miss(found) => Value::List(vec![found.as_ref().map_or(Value::Nil, text)]),
                    Vote::Refused { ttl_left, by } => Value::List(vec![number(ttl_left.0), text(&by)]),
                    Vote::Granted(grant) => number(grant.number()),
                    Vote::Released(count) => number(count),
                    Vote::Confirmed { ttl_left } | Vote::Sealed { ttl_left } => number(ttl_left.0),
                    Vote::Abstained | Vote::Unknown => Value::Error,
                },
            };
            parts.push(answer);
        }
        Value::List(parts)
    }

    /// Runs one script at `now` on the node's clock.
    pub fn vote(&mut self, now: u64, call: &Call<K>) -> Vote {
        let grants = matches!(call.op, Op::Acquire { .. } | Op::Confirm { .. });
        let admitted = self.is_admitted(&call.marker, grants);
        let late = now > call.deadline && matches!(call.op, Op::Acquire { .. } | Op::Extend { .. });
        if call.op.is_release() || (admitted && !late) {
            return self.execute(now, &call.keys, &call.op);
        }
        Vote::Abstained
    }

    /// Whether `marker` is on this node. A call for a new term needs the counter too: if it was deleted alone, the node lost data, and
    /// gives up its marker.
    fn is_admitted(&mut self, marker: &Marker, grants: bool) -> bool {
        let admitted = self.marker.as_ref() == Some(marker);
        if admitted && grants && self.fence.is_none() && self.mutant != Some(Mutant::CounterLossIgnored) {
            self.marker = None;
            return false;
        }
        admitted
    }

    /// Runs fence: which configuration this node votes for, if `expected` is its marker under ours, and its counter.
    pub fn fence(&self, micros: u64, expected: &Marker) -> Value {
        let votes_for = match &self.marker {
            Some(marker) if marker == expected => 1,
            Some(Marker::Admitted { run_id, .. }) if run_id == expected.run_id() => 2,
            _ => 0,
        };
        let fence = self.fence.map_or_else(|| [number(0), text(&0)], |fence| [number(votes_for), text(&fence)]);
        Value::List(time(micros).into_iter().chain([text(&"fence")]).chain(fence).collect())
    }

    /// Executes a request that is neither late nor without its marker.
    fn execute(&mut self, now: u64, keys: &[K], op: &Op) -> Vote {
        match op {
            Op::Acquire { attempt, proposal, ttl, holder } => {
                self.acquire(now, keys, *attempt, *proposal, *ttl, holder)
            }
            Op::Confirm { attempt, grant, token } => self.confirm(now, keys, *attempt, *grant, *token),
            Op::Extend { attempt, token, ttl } => self.extend(now, keys, *attempt, *token, *ttl),
            Op::Seal { attempt } => self.seal(now, keys, *attempt),
            Op::Release { attempt, stages } => self.release(now, keys, *attempt, *stages),
            Op::Keep { attempt, ttl } => self.keep(now, keys, *attempt, *ttl),
        }
    }

    fn counter(&mut self, keys: &[K]) -> &mut u64 {
        match (self.mutant, keys.first()) {
            (Some(Mutant::CounterPerLease), Some(key)) => self.fences.entry(key.clone()).or_default(),
            _ => self.fence.get_or_insert_default(),
        }
    }

    fn acquire(
        &mut self,
        now: u64,
        keys: &[K],
        attempt: Attempt,
        proposal: Option<Token>,
        ttl: Millis,
        holder: &Holder,
    ) -> Vote {
        let first = keys.first().and_then(|key| self.value(key, now));
        let granted = first.filter(|first| first.attempt == attempt).and_then(|first| match first.stage {
            Stage::Pending => Some(Grant::Numbered(first.number)),
            Stage::Term => Some(Grant::Proposed(Token(first.number))).filter(|_| proposal == Some(Token(first.number))),
            Stage::Sealed => None,
        });
        if let Some(grant) = granted
            && keys.iter().all(|key| {
                let is_of = |value: &Stored| {
                    value.attempt == attempt && value.stage == grant.stage() && value.number == grant.number()
                };
                self.value(key, now).is_some_and(is_of)
            })
        {
            return Vote::Granted(grant);
        }
        let refusing =
            keys.iter().filter(|key| self.entry(key, now).is_some()).max_by_key(|key| self.ttl_left(key, now));
        if let Some(key) = refusing
            && let Some(by) = self.value(key, now)
        {
            return Vote::Refused { ttl_left: self.ttl_left(key, now), by: by.clone() };
        }
        let [equal, uncounted] =
            [Mutant::ProposalNotAbove, Mutant::ProposalNotCounted].map(|mutant| self.mutant == Some(mutant));
        let counter = self.counter(keys);
        let taken = proposal.filter(|token| token.0 > *counter || equal && token.0 == *counter);
        let grant = taken.map_or(Grant::Numbered(*counter + 1), Grant::Proposed);
        if !(taken.is_some() && uncounted) {
            *counter = grant.number();
        }
        for key in keys {
            let metadata = String::from(&*holder.0);
            let value = Stored { stage: grant.stage(), attempt, number: grant.number(), metadata };
            self.keys.insert(key.clone(), StoredKey { value, ends: now + ttl.0 });
        }
        Vote::Granted(grant)
    }

    fn confirm(&mut self, now: u64, keys: &[K], attempt: Attempt, grant: Grant, token: Token) -> Vote {
        let checked = if self.mutant == Some(Mutant::ConfirmFirstKeyOnly) { &keys[..1] } else { keys };
        let any_grant = self.mutant == Some(Mutant::NoGrantNumber);
        let right = |value: &Stored| {
            value.attempt == attempt
                && match value.stage {
                    Stage::Term if value.number == token.0 => true,
                    Stage::Sealed => false,
                    Stage::Pending if any_grant => true,
                    stage => stage == grant.stage() && value.number == grant.number(),
                }
        };
        if let Some(miss) = checked.iter().find(|key| !self.value(key, now).is_some_and(right)) {
            return Vote::Miss(self.value(miss, now).cloned());
        }
        let counter = self.counter(keys);
        *counter = (*counter).max(token.0);
        for key in keys {
            if let Some(entry) = self.keys.get_mut(key).filter(|entry| now <= entry.ends) {
                entry.value.attempt = attempt;
                entry.value.stage = Stage::Term;
                entry.value.number = token.0;
            }
        }
        Vote::Confirmed { ttl_left: self.least_life(keys, now) }
    }

    fn extend(&mut self, now: u64, keys: &[K], attempt: Attempt, token: Token, ttl: Millis) -> Vote {
        let mutant = self.mutant;
        let right = |value: &Stored| {
            let sealed = mutant == Some(Mutant::ExtendUnseals) && value.stage == Stage::Sealed;
            value.attempt == attempt
                && (mutant == Some(Mutant::AdoptByAttemptOnly)
                    || (value.stage == Stage::Term || sealed) && value.number == token.0)
        };
        let free = keys.iter().all(|key| self.value(key, now).is_none());
        if mutant == Some(Mutant::ExtendSets) && free {
            for key in keys {
                let value = Stored { stage: Stage::Term, attempt, number: token.0, metadata: String::new() };
                self.keys.insert(key.clone(), StoredKey { value, ends: now + ttl.0 });
            }
            return Vote::Extended;
        }
        if let Some(miss) = keys.iter().find(|key| !self.value(key, now).is_some_and(right)) {
            return Vote::Miss(self.value(miss, now).cloned());
        }
        for key in keys {
            if let Some(entry) = self.keys.get_mut(key) {
                let shortens = mutant == Some(Mutant::ExtendShortens);
                entry.ends = if shortens { now + ttl.0 } else { entry.ends.max(now + ttl.0) };
                if mutant == Some(Mutant::ExtendUnseals) {
                    entry.value.stage = Stage::Term;
                }
            }
        }
        Vote::Extended
    }

    fn seal(&mut self, now: u64, keys: &[K], attempt: Attempt) -> Vote {
        let shorten = self.mutant == Some(Mutant::SealShortens);
        let ours = |value: &Stored| value.attempt == attempt;
        let missed = |key: &&K| !self.value(key, now).is_some_and(ours);
        let taken = keys.iter().find(|key| missed(key) && self.value(key, now).is_some());
        let miss = taken.or_else(|| keys.iter().find(missed)).cloned();
        for key in keys {
            if let Some(entry) = self.keys.get_mut(key).filter(|entry| now <= entry.ends && ours(&entry.value)) {
                entry.value.stage = Stage::Sealed;
                if shorten {
                    entry.ends = entry.ends.min(now + 1);
                }
            }
        }
        match miss {
            Some(key) => Vote::Miss(self.value(&key, now).cloned()),
            None => Vote::Sealed { ttl_left: self.least_life(keys, now) },
        }
    }

    fn release(&mut self, now: u64, keys: &[K], attempt: Attempt, stages: Stages) -> Vote {
        let anything = self.mutant == Some(Mutant::ReleaseIgnoresAttempt);
        let mut count = 0;
        for key in keys {
            let ours = self
                .value(key, now)
                .is_some_and(|value| anything || value.attempt == attempt && stages.holds(value.stage));
            if ours {
                self.keys.remove(key);
                count += 1;
            }
        }
        Vote::Released(count)
    }

    fn keep(&mut self, now: u64, keys: &[K], attempt: Attempt, ttl: Millis) -> Vote {
        let mut count = 0;
        for key in keys {
            let entry = self.keys.get_mut(key).filter(|entry| now <= entry.ends && entry.value.attempt == attempt);
            let Some(entry) = entry else { continue };
            count += 1;
            let ends = now + ttl.0;
            if entry.value.stage != Stage::Sealed || ends < entry.ends {
                entry.value.stage = Stage::Sealed;
                entry.ends = ends;
            }
        }
        Vote::Released(count)
    }

    fn least_life(&self, keys: &[K], now: u64) -> Millis {
        keys.iter().map(|key| self.ttl_left(key, now)).min().unwrap_or(Millis::ZERO)
    }

    /// Writes a ticket if the marker does not name `run_id`, or is `stepped`, the marker from before the clock stepped, or if a node
    /// that votes has no counter. Answers the present marker.
    pub fn observe(&mut self, run_id: &RunId, nonce: u128, stepped: Option<&Marker>) -> Marker {
        let counts = self.fence.is_some() || self.mutant == Some(Mutant::CounterLossIgnored);
        let keep = (self.marker.as_ref())
            .filter(|marker| marker.run_id() == run_id && Some(*marker) != stepped)
            .filter(|marker| counts || matches!(marker, Marker::Wait { .. }));
        let marker = keep.cloned().unwrap_or_else(|| Marker::Wait { run_id: run_id.clone(), nonce });
        self.marker = Some(marker.clone());
        marker
    }

    /// Replaces exactly `ticket` by `marker` and raises the counter to `seed`. Answers the present marker, if there is
    /// one.
    pub fn admit(&mut self, ticket: &Marker, marker: &Marker, seed: Token) -> Option<Marker> {
        if self.marker.as_ref() == Some(ticket) {
            self.fence = self.fence.max(Some(seed.0));
            self.marker = Some(marker.clone());
        }
        self.marker.clone()
    }
}

/// The reply of observe and admit to this answer.
pub fn marker_reply(micros: u64, marker: Option<&Marker>) -> Value {
    Value::List(time(micros).into_iter().chain([text(&"marker"), marker.map_or(Value::Nil, text)]).collect())
}

/// TIME, with which each reply begins.
fn time(micros: u64) -> Vec<Value> {
    vec![text(&(micros / 1_000_000)), text(&(micros % 1_000_000))]
}

fn text(value: &impl ToString) -> Value {
    Value::Text(value.to_string().into_bytes())
}

fn number(number: u64) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}
