//! The connection to the node: its begin and end, the calls on it that are not for votes, and the admission.

use alloc::vec::Vec;

use crate::admission::{self, Admission};
use crate::marker::Marker;
use crate::op::Vote;
use crate::time::Time;
use crate::wire::batch::{Asked, Call};
use crate::wire::event::Effect;
use crate::wire::{Trust, Wire};

impl<K, R, C> Wire<K, R, C> {
    /// The admission of the node.
    pub const fn admission(&self) -> &Admission {
        &self.admission
    }

    /// The answer to a call of the process has arrived: it is not in flight any more.
    pub fn take_own(&mut self, id: u64) -> Option<C> {
        if !matches!(self.in_flight.get(id)?.call, Call::Own(_)) {
            return None;
        }
        match self.in_flight.take(id)? {
            Call::Own(own) => Some(own),
            Call::Admission(_) | Call::Batch(_) => None,
        }
    }

    pub(super) fn open(&mut self) {
        (self.is_connected, self.trust) = (true, Trust::default());
    }

    /// Gives an input to the admission and sends its calls.
    pub(super) fn admit(&mut self, now: Time, input: admission::Input) {
        self.admission.handle(now, input);
        self.trust.marker = self.admission.marker();
        while let Some(effect) = self.admission.poll_effect() {
            match effect {
                admission::Effect::Call(call) => self.send_call(now, Call::Admission(call), None),
                effect => self.effects.push_back(Effect::Admission(effect)),
            }
        }
    }

    pub(super) fn marked(&mut self, now: Time, id: u64, marker: Option<Marker>) {
        let Some(Call::Admission(call)) = self.in_flight.take(id) else { return };
        match marker {
            Some(marker) if marker.run_id() == call.run_id() => self.admit(now, admission::Input::Observed(marker)),
            Some(marker) => self.effects.push_back(Effect::AnotherServer(marker)),
            // Only admit finds no marker.
            None => self.effects.push_back(Effect::Flushed),
        }
    }

    /// The connection is gone: the votes on all requests are unknown.
    pub(super) fn close(&mut self, now: Time) {
        let sent = core::iter::from_fn(|| self.in_flight.take_oldest());
        let (again, waiting) = self.reload.take().map(|reload| (reload.again, reload.waiting)).unwrap_or_default();
        let calls: Vec<Call<K, R, C>> = sent.chain(again).collect();
        for call in calls {
            match call {
                Call::Batch(batch) => self.vote_all(batch.asked, &Vote::Unknown),
                Call::Own(own) => self.effects.push_back(Effect::Lost(own)),
                Call::Admission(_) => {}
            }
        }
        let gathered = self.gathered.take().into_iter().flatten();
        let releases = core::iter::from_fn(|| self.releases.pop());
        let rest = gathered.chain(self.extends.take_all()).chain(waiting).chain(releases);
        let rest: Vec<Asked<K, R>> = rest.collect();
        self.vote_all(rest, &Vote::Unknown);
        self.is_connected = false;
        self.admit(now, admission::Input::Disconnected);
    }
}
