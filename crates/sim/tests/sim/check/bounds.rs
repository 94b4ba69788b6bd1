//! No machine is busy for ever, and no process sends too many commands.

use redislease_core::time::Time;

use crate::operator::state::Life;
use crate::world::{EFFECTS_OF_ONE_EVENT, World};

impl World {
    /// A machine that was woken must move its deadline: otherwise its driver would wake it in a busy loop.
    pub fn nothing_spins(&mut self, process: usize, now: Time) {
        let woken = &self.processes[process];
        if woken.life != Life::Running {
            return;
        }
        let late = |deadline: &Option<Time>| deadline.is_some_and(|deadline| deadline <= now);
        let lease = woken.machines.iter().find(|machine| late(&machine.driver.next_deadline()));
        let node = woken.peers.iter().find(|peer| late(&peer.wire.next_deadline()));
        let machine = lease.map(|machine| format!("{:?}", machine.driver));
        let engine = late(&woken.engine.next_deadline()).then(|| "the engine".to_owned());
        if let Some(machine) = machine.or_else(|| node.map(|peer| format!("{:?}", peer.wire))).or(engine) {
            self.check.fail(format!("woken at {} it asks to be woken in the past: {machine}", now.0));
        }
    }

    /// Whether a process that has run since `boot` polls its next effect.
    pub fn polls_on(&mut self, process: usize, boot: u32, of: &str) -> bool {
        let polls = &self.processes[process];
        polls.life == Life::Running && polls.boot == boot && self.polls(of)
    }

    /// Whether another effect may be polled in this event: a machine may repeat the same one for ever.
    pub fn polls(&mut self, of: &str) -> bool {
        self.polled += 1;
        if self.polled > EFFECTS_OF_ONE_EVENT {
            self.check.fail(format!("{of} has more than {EFFECTS_OF_ONE_EVENT} effects at one instant"));
        }
        self.polled <= EFFECTS_OF_ONE_EVENT
    }

    /// I8: how many commands one process may send to one node within five seconds. A heartbeat each second, readings of its clock, and the steps of
    /// an admission; for each lease that it still runs, three commands for each round of renewal (an extension and the two
    /// halves of a join), and attempts and their releases, which the backoff delays until a majority of the nodes returns. The
    /// release of each failed attempt is repeated to a node that does not answer, until the keys have ended: over 2000 seeds that
    /// was at most 82 commands for one lease.
    pub fn command_bound(&self, process: usize) -> u64 {
        let machines = self.processes[process].machines.iter();
        let rounds = machines.map(|machine| 5000 / machine.driver.lease().config().retry_pace().0 + 1);
        50 + rounds.map(|rounds| 3 * rounds + 110).sum::<u64>()
    }
}
