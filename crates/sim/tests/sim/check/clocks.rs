//! Whether a process judges the clocks rightly: its own, and those of the Redis nodes.

use redislease_core::judge::Effect;
use redislease_core::lease::Standing;
use redislease_core::time::Time;

use crate::check::coverage::Sight;
use crate::redis::clock::{MILLI, Micros};
use crate::world::World;

impl World {
    /// The judge of a process has found something.
    pub fn sees_finding(&mut self, process: usize, finding: Effect) {
        match finding {
            Effect::Doubted(node) => {
                let now = self.now;
                self.processes[process].peers[node.index()].seen.doubted_at.get_or_insert(now);
            }
            Effect::Steady(node) => self.doubt_ends(process, node.index()),
            Effect::Stepped(node) => self.step_found(process, node.index()),
            Effect::Void { lost: Some(_) } => self.coverage.saw(Sight::OwnClockJumped),
            Effect::Void { lost: None } | Effect::ReadClock(_) => {}
        }
    }

    /// When a belief ends that counts from `t0` by the clock of the process, if it had not lost time since. Until a reply shows the
    /// jump, nobody can know of it: no lock protects from a process that stands still.
    pub fn belief_ends(&self, process: usize, t0: Time, valid_until: Time) -> Micros {
        let process = &self.processes[process];
        let lost = process.history.losses.iter().filter(|(at, _)| *at >= t0).map(|(_, lost)| lost).sum();
        process.clock.when(valid_until.0).saturating_sub(lost)
    }

    /// A doubt may have ended because it lasted for one longest lease. Then it is not known whose clock jumped, and the same jump
    /// of a node that comes back later cannot be explained.
    fn doubt_ends(&mut self, process: usize, node: usize) {
        let (now, longest) = (self.now, self.swarm.longest.0 * MILLI);
        let process = &mut self.processes[process];
        let doubted_at = process.peers[node].seen.doubted_at.take();
        process.history.waited_out_a_doubt |= doubted_at.is_some_and(|at| now - at >= longest);
    }

    /// A node whose clock was never set may get a ticket: its offset may have been known badly, because its answers were slow or it
    /// was disconnected. But no process may take the quorum away from the others because its own clock stood still.
    fn step_found(&mut self, process: usize, node: usize) {
        self.coverage.saw(Sight::StepSeen);
        self.processes[process].peers[node].seen.doubted_at = None;
        // A pause that coincides with a step of one node cannot be told from steps of all.
        let explained = self.last_step.iter().any(|step| *step > 0) || self.swarm.quorum.size() < 3;
        if !explained && !self.processes[process].history.waited_out_a_doubt {
            self.wrong_tickets[node] = Some(self.now);
            let since = self.now.saturating_sub(self.swarm.quarantine());
            let silenced = self.wrong_tickets.iter().flatten().filter(|at| **at >= since).count();
            if silenced >= self.swarm.quorum.blocking() {
                self.check
                    .fail(format!("process {process} takes the vote of {silenced} nodes whose clocks were never set"));
            }
        }
    }

    /// No belief from before the jump may last.
    pub fn nothing_outlasts_a_jump(&mut self, process: usize) {
        for machine in self.processes[process].machines.iter().filter(|machine| !machine.driver.is_closing()) {
            if let Standing::Held(term) | Standing::Publishing(term) = &machine.driver.view().standing {
                self.check.fail(format!("process {process} believes in {term:?} from before its clock jumped"));
            }
        }
    }
}
