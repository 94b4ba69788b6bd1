//! What must follow the status during the recovery: a difference may last for a while, and is a failure after that.

use redislease_core::lease::Standing;
use redislease_core::op::Token;
use redislease_core::time::Time;
use redislease_plan::api::conditions::{ConditionStatus, ConditionType};
use redislease_plan::api::names;
use redislease_plan::election::PodFacts;

use crate::api::objects::{self, lease_of};
use crate::check::state::Kind;
use crate::operator::state::Machine;
use crate::redis::clock::{Micros, SECOND};
use crate::world::World;

/// How long pods may differ from the status after a change of the holder.
const FOLLOW: Micros = 8 * SECOND;

/// How often a workload is read that is a candidate itself.
const READ_AGAIN: Micros = 10 * SECOND;

/// One difference, how long it may last, and its description.
type Difference = (Kind, Micros, String);

impl World {
    /// `election` is how long no replica may lead, in addition to the bound of each difference.
    pub fn check_what_follows(&mut self, election: Micros) {
        let (away, waits_until) = (self.recovery.without_api, self.recovery.waits_until);
        for cluster in (0..self.apis.len()).filter(|cluster| Some(*cluster) != away) {
            for place in 0..self.swarm.keys.len() {
                let differences = self.differences(cluster, place);
                let lasting = self.recovery.lasting.0.entry((cluster, place)).or_default();
                lasting.retain(|kind, _| differences.iter().any(|(now, ..)| now == kind));
                for (kind, bound, difference) in differences {
                    let since = *lasting.entry(kind).or_insert(self.now);
                    if self.now > since.max(waits_until) + bound + election {
                        let name = kind.name();
                        self.check.fail(format!(
                            "{name}: since {since} µs, lease {place} of cluster {cluster}: {difference}"
                        ));
                    }
                }
            }
        }
    }

    fn differences(&self, cluster: usize, place: usize) -> Vec<Difference> {
        let spec = &self.specs[cluster][place];
        let gate = spec.gated.then(|| self.astray(cluster, place)).flatten();
        let workload = spec.clustered.then(|| self.misplaced_workload(cluster, place)).flatten();
        let back_off = self.back_off((cluster, place));
        let differences = [
            self.stale_status(cluster, place),
            self.unshown(cluster, place),
            self.mistaken_token(cluster, place).map(|text| (Kind::Token, FOLLOW + back_off, text)),
            self.mistaken_about_peers(cluster, place),
            self.mislabelled(cluster, place).map(|text| (Kind::Labels, FOLLOW + back_off, text)),
            gate.map(|text| (Kind::Gate, FOLLOW + back_off, text)),
            workload.map(|text| (Kind::Workload, FOLLOW + READ_AGAIN + back_off, text)),
        ];
        differences.into_iter().flatten().collect()
    }

    /// The status names a term that has ended.
    fn stale_status(&self, cluster: usize, place: usize) -> Option<Difference> {
        let named = self.apis[cluster].active(place)?;
        let is_live = self.check.live.iter().any(|live| live.attempt == named.attempt && self.now < live.until);
        let bound = self.swarm.key_life() + self.swarm.longest_delay() + 2 * SECOND;
        let text = || format!("the status names {:?}, which has ended", named.attempt);
        (!is_live).then(|| (Kind::Status(named.attempt), bound, text()))
    }

    /// A process that decides treats a term as held, and the status does not call it active.
    fn unshown(&self, cluster: usize, place: usize) -> Option<Difference> {
        let lease = self.apis[cluster].state.leases[place].as_deref()?;
        let active = self.apis[cluster].active(place).map(|named| named.attempt);
        let decides =
            |process: &usize| self.processes[*process].cluster == cluster && self.authority(*process).decides();
        let deciding = (0..self.processes.len()).filter(decides);
        let machines = deciding.filter_map(|process| {
            let mut machines = self.processes[process].machines.iter();
            machines.find(|machine| lease_of(machine.uid) == objects::uid_of(lease) && !machine.driver.is_closing())
        });
        let mut held = machines.filter_map(|machine| match &machine.driver.view().standing {
            Standing::Held(term) => Some(term.id.attempt),
            _ => None,
        });
        let attempt = held.find(|attempt| Some(*attempt) != active)?;
        let named = self.apis[cluster].named(place);
        Some((Kind::Unshown(attempt), FOLLOW, format!("{attempt:?} is held, and the status names {named:?}")))
    }

    /// The pod or workload that the status calls active shows another token.
    pub fn mistaken_token(&self, cluster: usize, place: usize) -> Option<String> {
        let (api, name) = (&self.apis[cluster], names::token_annotation(&objects::lease_name(place)));
        let named = api.active(place)?;
        let shown = if self.specs[cluster][place].clustered {
            api.workload_of(place)?.annotations.get(&name)
        } else {
            api.state.pods.get(&named.pod)?.annotations.get(&name)
        };
        let shown = Token(objects::version(shown.map(String::as_str)));
        (shown != named.token).then(|| format!("what is active shows {shown:?} instead of {:?}", named.token))
    }

    /// The status says that another cluster holds the lease, and none does; or one does, and the status does not say so.
    fn mistaken_about_peers(&self, cluster: usize, place: usize) -> Option<Difference> {
        let status = self.apis[cluster].state.leases[place].as_ref()?.status.as_ref()?;
        let (keys, says) = (self.swarm.keys[place], status.says_held_by_peer());
        // Also a term of a pod that has stopped, which its operator cannot know.
        let holds = |process: usize, machine: &Machine| {
            let runs = machine.stop_at().is_some_and(|stop_at| Time(self.local(process)) < stop_at);
            runs && if says { machine.bits() & keys != 0 } else { machine.bits() == keys }
        };
        let peers = (0..self.processes.len()).filter(|process| self.processes[*process].cluster != cluster);
        let mut held =
            peers.map(|process| self.processes[process].machines.iter().any(|machine| holds(process, machine)));
        let agrees = held.any(|held| held) == says;
        let bound = 3 * self.swarm.key_life() + self.swarm.longest_delay() + self.swarm.quarantine() + 5 * SECOND;
        let text = || format!("the status says of another cluster that it holds the lease: {says}");
        (!agrees).then(|| (Kind::Peer, bound, text()))
    }

    /// Not exactly the holder that the status calls active carries `active`.
    fn mislabelled(&self, cluster: usize, place: usize) -> Option<String> {
        let api = &self.apis[cluster];
        let holder = api.active(place).map(|named| named.pod);
        let expected: Vec<u32> = holder.into_iter().filter(|pod| api.state.pods.contains_key(pod)).collect();
        let active: Vec<u32> = api.active_pods(place).collect();
        let text = || format!("the pods {active:?} are labelled active, and the status names {expected:?}");
        (active != expected).then(text)
    }

    /// Of the pods that an operator started, another one runs than the holder that the status calls active, or the holder was
    /// not started.
    fn astray(&self, cluster: usize, place: usize) -> Option<String> {
        let pods = &self.apis[cluster].state.pods;
        let lease = self.apis[cluster].state.leases[place].as_deref()?;
        // A term that is not confirmed may continue.
        let named = objects::named(lease).filter(|named| named.active != Some(false));
        let holder = named.map(|named| named.pod);
        // A pod whose lease was deleted runs on. If it is no candidate, the next lease of this name does not find it.
        let spec = &self.specs[cluster][place];
        let is_known =
            |pod: &PodFacts| objects::is_candidate(pod, place, spec) || objects::role_of(pod, place).0.is_some();
        let runs = |pod: &PodFacts| {
            objects::was_started(pod, place) && pod.deletion_grace.is_none() && !pod.finished && is_known(pod)
        };
        // A lease that was created again has had no term. While it can elect no pod, the one of the lease before runs on. One that is
        // suspended only reads who has the keys, and not until when.
        let status = lease.status.as_ref();
        let had_term = status.is_some_and(|status| status.given_token() > 0);
        let votes = status.is_some_and(|status| {
            status.says_held_by_peer() || status.says(ConditionType::QuorumHealthy, ConditionStatus::True)
        });
        if !had_term && (lease.spec.suspend || !votes) {
            return None;
        }
        if let Some((lost, _)) = pods.iter().find(|&(&number, pod)| runs(pod) && holder != Some(number)) {
            return Some(format!("pod {lost} runs without the lease"));
        }
        let active = named.filter(|named| named.active == Some(true)).map(|named| named.pod);
        let waits = active.and_then(|holder| pods.get(&holder)).filter(|pod| !pod.gates.is_empty());
        waits.map(|pod| format!("the holder {} is not started", pod.name))
    }
}
