//! The back-off of one lease's writes to objects that belong to others: pods and workloads.
//!
//! The caller asks before each write, and reports each outcome. The machine does not know what is written: `W` says what the
//! lease wants of the object, and two equal values want the same.
//!
//! | what happened | what follows |
//! |---|---|
//! | the API server refused the write, or stored something else | the same write waits 1 s, then twice as long each time, up to 5 min |
//! | others changed what was stored | the write corrects it at once; the third correction within a minute starts the same back-off |
//! | the lease wants something else | one write at once: a fighter never delays a stop at failover |
//! | anything | at most [`BURST`] writes at once and one a second on average: at most 120 a minute |

use redislease_core::backoff::Backoff;
use redislease_core::time::{Millis, Time};

use super::bucket::Bucket;
use super::event::RoleOutcome;

/// The pause after a refusal or a repeated correction.
pub const PAUSE: Backoff = Backoff::exponential(1000, 300_000, 0);
/// The period in which corrections are counted, and in which one event tells of them.
const MINUTE: Millis = Millis(60_000);
/// The correction within a minute that starts the back-off.
const CORRECTIONS: usize = 3;
/// Without a refusal or a correction for this time, the back-off starts again with its shortest pause.
const FORGOTTEN: Millis = Millis(600_000);
/// How many writes of one object can follow each other without a pause, whatever the lease wants.
const BURST: u64 = 60;
/// The average time between two writes of one object when a burst is used up, in microseconds.
const REFILL: u64 = 1_000_000;

/// The back-off for each object that one lease has written to.
#[derive(Clone, Debug)]
pub struct Guard<W> {
    /// Sorted by UID. Most leases have few objects, for which a map would allocate eleven places.
    objects: Vec<(String, Object<W>)>,
}

/// What happened to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The answer shows everything that was asked for.
    Stored,
    /// The API server refused it, or its answer shows something else than was asked for.
    Refused,
    /// Nothing was stored, or this is unknown: the object had changed, or there was no answer.
    Undecided,
    /// It was not sent.
    Unsent,
    /// The object does not exist any more.
    Gone,
}

impl From<&RoleOutcome> for Written {
    fn from(outcome: &RoleOutcome) -> Self {
        match outcome {
            RoleOutcome::Written(None) => Self::Stored,
            RoleOutcome::Refused(_) | RoleOutcome::Written(Some(_)) => Self::Refused,
            RoleOutcome::Conflict | RoleOutcome::Unanswered(_) | RoleOutcome::AtFault(_) => Self::Undecided,
            RoleOutcome::Withdrawn => Self::Unsent,
            RoleOutcome::Gone => Self::Gone,
        }
    }
}

/// A write that corrects what others have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Correction {
    /// Whether an event must tell of it: one a minute does.
    pub tell: bool,
}

#[derive(Clone, Debug)]
struct Object<W> {
    /// What the last write wanted whose outcome is a fact; `None` after an undecided one, which must not use up the one write
    /// after a change.
    wanted: Option<W>,
    /// Whether the API server has stored it.
    stored: bool,
    /// How often in a row writes were refused.
    refusals: u32,
    /// How often the back-off for corrections has started.
    fights: u32,
    /// The latest corrections, at most [`CORRECTIONS`].
    corrections: Vec<Time>,
    /// When an event last reported corrections.
    reported_at: Option<Time>,
    /// The last refusal or correction.
    last_trouble: Time,
    /// When the same write may be sent again.
    until: Time,
    writes: Bucket<BURST, REFILL>,
}

impl<W> Default for Guard<W> {
    fn default() -> Self {
        Self { objects: Vec::new() }
    }
}

impl<W: PartialEq> Guard<W> {
    /// When this write may be sent: a time that is not after `now` means at once.
    pub fn due(&self, now: Time, uid: &str, wanted: &W) -> Time {
        let Some(object) = self.get(uid) else { return now };
        let affordable = object.writes.available_at(1).max(now);
        let same = object.wanted.as_ref() == Some(wanted);
        if same { affordable.max(object.until) } else { affordable }
    }

    /// Records a write that is sent. Returns whether it corrects what others have changed: the last write wanted the same,
    /// the API server had stored it, and this one does not only raise the fence.
    pub fn sent(&mut self, now: Time, uid: &str, wanted: W, only_fences: bool) -> Option<Correction> {
        let object = self.get_or_insert(now, uid);
        object.writes.take(now);
        let corrects = !only_fences && object.stored && object.wanted.as_ref() == Some(&wanted);
        object.wanted = Some(wanted);
        object.stored = false;
        corrects.then(|| object.correct(now))
    }

    /// Records the outcome of the last write that was sent to the object.
    pub fn written(&mut self, now: Time, uid: &str, written: Written) {
        if written == Written::Gone {
            return self.objects.retain(|(known, _)| known != uid);
        }
        let object = self.get_or_insert(now, uid);
        match written {
            Written::Stored => {
                object.stored = true;
                object.refusals = 0;
            }
            Written::Refused => {
                object.begin_trouble(now);
                object.refusals = object.refusals.saturating_add(1);
                object.until = object.until.max(now + PAUSE.delay(object.refusals));
            }
            Written::Undecided | Written::Gone => object.wanted = None,
            Written::Unsent => {
                object.wanted = None;
                object.writes.give_back();
            }
        }
    }

    /// Drops what is known about stored writes: another process may write until this one asks again.
    pub fn forget_stored(&mut self) {
        for (_, object) in &mut self.objects {
            object.stored = false;
        }
    }

    /// Drops what is known about objects that do not exist any more.
    pub fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        self.objects.retain(|(uid, _)| exists(uid));
        self.objects.shrink_to_fit();
    }

    /// The number of objects that were written to.
    pub const fn count(&self) -> usize {
        self.objects.len()
    }

    fn get(&self, uid: &str) -> Option<&Object<W>> {
        let place = self.place(uid).ok()?;
        self.objects.get(place).map(|(_, object)| object)
    }

    fn get_or_insert(&mut self, now: Time, uid: &str) -> &mut Object<W> {
        let place = self.place(uid).unwrap_or_else(|place| {
            // Most leases write to one object. Without this, the first one would allocate the places of four.
            self.objects.reserve_exact(1);
            self.objects.insert(place, (uid.to_owned(), Object::new(now)));
            place
        });
        &mut self.objects[place].1
    }

    fn place(&self, uid: &str) -> Result<usize, usize> {
        self.objects.binary_search_by(|(known, _)| known.as_str().cmp(uid))
    }
}

impl<W> Object<W> {
    fn new(now: Time) -> Self {
        Self {
            wanted: None,
            stored: false,
            refusals: 0,
            fights: 0,
            corrections: Vec::new(),
            reported_at: None,
            last_trouble: now,
            until: Time(0),
            writes: Bucket::default(),
        }
    }

    fn begin_trouble(&mut self, now: Time) {
        if now.since(self.last_trouble) >= FORGOTTEN {
            (self.refusals, self.fights) = (0, 0);
        }
        self.last_trouble = now;
    }

    fn correct(&mut self, now: Time) -> Correction {
        self.begin_trouble(now);
        self.corrections.retain(|at| now.since(*at) < MINUTE);
        self.corrections.push(now);
        if self.corrections.len() >= CORRECTIONS || self.fights > 0 {
            self.fights = self.fights.saturating_add(1);
            self.until = self.until.max(now + PAUSE.delay(self.fights));
            self.corrections.clear();
        }
        let tell = self.reported_at.is_none_or(|reported_at| now.since(reported_at) >= MINUTE);
        if tell {
            self.reported_at = Some(now);
        }
        Correction { tell }
    }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
