//! Carries out the effects of a reconciler, and returns their outcomes.

use std::sync::Arc;

use redislease_plan::api::RedisLease;
use redislease_plan::engine::{Caller, Subject};
use redislease_plan::plan::calls::{Key, Outcome, Request};
use redislease_plan::plan::{Command, Effect};

use crate::event::Inside;
use crate::event::SharedViews;
use crate::operator::state::Ticket;
use crate::world::World;

impl World {
    pub fn carry_out_plan(&mut self, process: usize, uid: u32, subject: &Subject, effect: Effect) {
        self.sees_plan(process, uid, &effect);
        let lease = subject.lease_name().uid;
        match effect {
            Effect::Keeper(command) if self.ignores(process, uid, &command) => {}
            Effect::Open { .. } | Effect::RaiseFloor(_) | Effect::Keeper(_) => self.send_order(process, uid, effect),
            Effect::WithdrawStatus => self.withdraw(process, &Key::LeaseStatus(lease)),
            Effect::WithdrawRole { uid } => self.withdraw(process, &Key::Role(uid.into(), lease)),
            Effect::Probe => {
                self.processes[process].calls.probe();
                self.dispatch(process);
            }
            _ => {}
        }
    }

    /// Makes a call for the machine of a lease.
    pub fn carry_out_call(&mut self, process: usize, uid: u32, caller: Caller, request: Request) {
        self.sees_call(process, uid, &request);
        if let Some(request) = self.plant_in_call(process, uid, &caller, request) {
            self.submit(process, request, Ticket::Engine(caller));
        }
    }

    fn withdraw(&mut self, process: usize, key: &Key) {
        self.processes[process].calls.withdraw(key);
        self.dispatch(process);
    }

    /// Sends an order to the keeper. Orders keep their order.
    pub fn send_order(&mut self, process: usize, uid: u32, order: Effect) {
        let views = matches!(order, Effect::Open { .. }).then(SharedViews::default);
        if views.is_some() || order == Effect::Keeper(Command::Close) {
            self.processes[process].read_from(uid, views.clone());
        }
        let delay = self.rng.between(10, 200);
        let at = (self.now + delay).max(self.processes[process].last_command);
        self.processes[process].last_command = at;
        self.later(process, at - self.now, Inside::Order { uid, order: Box::new(order), views });
    }

    /// The newest observed version of a lease, if its resource exists.
    pub fn resource(&mut self, process: usize, uid: u32) -> Option<Arc<RedisLease>> {
        let id = self.unit(process, uid)?.id;
        self.processes[process].engine.index().lease(id)?.object.clone()
    }

    /// The outcome of a call of the engine.
    pub fn engine_outcome(&mut self, process: usize, mut caller: Caller, mut outcome: Outcome) {
        if let Caller::Lease(id, _) = &caller {
            self.sees_outcome(process, *id, &outcome);
        }
        self.plant_in_outcome(process, &mut caller, &mut outcome);
        match caller.input(outcome) {
            Some(input) => self.tell_engine(process, input),
            None => self.check.fail("an outcome is of another kind than its call".into()),
        }
    }
}
