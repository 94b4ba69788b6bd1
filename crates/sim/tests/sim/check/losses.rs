//! I5: a lost term is counted soon, and each end of a term once.

use std::sync::Arc;

use redislease_core::op::Attempt;
use redislease_plan::api::RedisLease;
use redislease_plan::status::TermEnd;

use crate::api::objects::{self, Named};
use crate::check::coverage::Sight;
use crate::event::Inside;
use crate::redis::clock::{Micros, SECOND};
use crate::world::World;

/// How soon a loss must be counted, beside the delay of the engine.
const COUNTED_WITHIN: Micros = SECOND;

impl World {
    /// I5: a loss is counted, whether the API server answers or not.
    pub fn count_end(&mut self, process: usize, uid: u32, end: TermEnd) {
        self.coverage.saw(if end.is_loss() { Sight::LossCounted } else { Sight::EndCounted });
        let named = self.named(process, uid).map(|named| named.attempt);
        if end.is_loss() {
            self.orphans_lose(process, uid);
        }
        let Some(unit) = self.unit(process, uid) else { return };
        unit.checks.lost |= end.is_loss();
        let Some(attempt) = named else { return };
        let untested = unit.checks.ended_while_running.take().filter(|(ended, _)| *ended == attempt);
        unit.checks.counted.insert(attempt);
        let place = unit.place;
        // A list that shows an older state may name an earlier term once more.
        if unit.checks.last_counted.replace(attempt) == Some(attempt) {
            self.check.fail(format!("I5: process {process} counts the end of {attempt:?} twice"));
        }
        if let Some((_, problem)) = untested {
            self.end_has_reason(attempt, end, problem);
        }
        self.workload_is_left((self.processes[process].cluster, place), attempt, end);
    }

    /// I5: the machine of a lease has lost a term. It must be counted soon, whether the API server answers or not.
    pub fn loss_is_due(&mut self, process: usize, serial: u64, uid: u32, attempt: Attempt) {
        let delay = self.swarm.engine_delay.1 + COUNTED_WITHIN;
        self.later(process, delay, Inside::LossDue { serial, uid, attempt });
    }

    /// The status still names the lost term, this process decides, and it has not counted the loss. A process that meanwhile did not
    /// decide has another machine, which finds the loss by itself.
    pub fn loss_was_counted(&mut self, process: usize, serial: u64, uid: u32, attempt: Attempt) {
        if self.processes[process].machine_of(uid).is_none_or(|machine| machine.serial != serial) {
            return;
        }
        // A process that was paused has its turns only now.
        let continued_at = self.processes[process].history.continued_at;
        if continued_at > 0 && self.now < continued_at + COUNTED_WITHIN {
            return self.loss_is_due(process, serial, uid, attempt);
        }
        let decides = self.authority(process).decides();
        let exists = self.resource(process, uid).is_some();
        let named = self.named(process, uid);
        // Another process may have recorded the end.
        let named = named.filter(|named| named.active != Some(false)).map(|named| named.attempt);
        let Some(unit) = self.unit(process, uid) else { return };
        let counted = unit.checks.counted.contains(&attempt);
        let awaited = self.processes[process].views.get(&uid).is_some_and(|views| views.borrow().is_awaited());
        let busy = awaited || self.processes[process].work_due;
        if decides && exists && named == Some(attempt) && !counted && !busy {
            self.check.fail(format!("I5: process {process} lost {attempt:?} and has not counted it"));
        }
    }

    /// The newest observed version of a lease, if its resource exists.
    pub fn resource(&mut self, process: usize, uid: u32) -> Option<Arc<RedisLease>> {
        let id = self.unit(process, uid)?.id;
        self.processes[process].engine.index().lease(id)?.object.clone()
    }

    /// The term that the newest version of the lease names which a turn has seen.
    pub fn named(&mut self, process: usize, uid: u32) -> Option<Named> {
        let id = self.unit(process, uid)?.id;
        self.processes[process].engine.machine(id)?.lease.as_deref().and_then(objects::named)
    }
}
