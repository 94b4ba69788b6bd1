//! The parameters of one seed's world. Each seed has only some faults, with weights of its own: in a run with every fault,
//! most bugs would hide each other.

use redislease_core::check::Mutant;
use redislease_core::quorum::Quorum;
use redislease_core::time::Millis;
use redislease_core::wire::Limits;
use redislease_plan::api::names::PodRole;
use redislease_plan::plan::PERMITS;
use redislease_plan::plan::calls::Limits as CallLimits;

use crate::api::objects::{Keys, LeaseSpec, OF_NAMESPACE};
use crate::chaos::bug::Bug;
use crate::chaos::fault::Fault;
use crate::chaos::rng::Rng;
use crate::redis::clock::{FASTEST, MILLI, Micros, SECOND, SLOWEST, TRUE_RATE};

/// How many of 1000 seeds have [`WORKLOADS`] leases.
const MANY: u64 = 5;
const WORKLOADS: usize = 120;

/// Whether a lease is one of those that the bits name. Later leases repeat the first ones.
pub const fn of_place(bits: u8, place: usize) -> bool {
    bits & 1 << (place % u8::BITS as usize) != 0
}

/// The delays and faults of messages between operators and Redis servers.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    pub delay: (Micros, Micros),
    /// How many of 1000 messages take up to `slowest` instead.
    pub slow: u64,
    pub slowest: Micros,
    pub loss: u64,
    pub repeat: u64,
}

#[derive(Clone, Debug)]
pub struct Swarm {
    pub quorum: Quorum,
    pub command_timeout: Millis,
    /// The longest lease that the quorum allows.
    pub longest: Millis,
    /// The cluster of each process.
    pub processes: Vec<usize>,
    pub clusters: usize,
    /// Replicas elect a leader; otherwise each decides as if it led.
    pub elects: bool,
    /// The processes are programs with this number of tasks each, instead of operators.
    pub programs: usize,
    /// The keys of each lease, as bits; the same in every cluster.
    pub keys: Vec<Keys>,
    /// The selector of the first lease [excludes](LeaseSpec::excludes) pods, and so selects those of the other leases too.
    pub excludes: bool,
    /// The leases that let only the pod start that they elect, as bits by place.
    pub gated: u8,
    /// The leases that clusters hold, as bits by place.
    pub clustered: u8,
    /// The leases of `clustered` that the operator has made for their workloads, as bits by place.
    pub made: u8,
    /// The role that the template and the selector of the controller of all candidates name.
    pub selected: Option<PodRole>,
    /// Candidates of each lease.
    pub pods: usize,
    /// What a lease's spec may be. Specs of one key differ between clusters and over time.
    pub specs: Vec<LeaseSpec>,
    pub network: Network,
    /// How long requests to one node are gathered: its task is busy.
    pub node_delay: (Micros, Micros),
    pub limits: Limits,
    pub api_delay: (Micros, Micros),
    /// How long a call to the API server may take.
    pub api_timeout: Micros,
    /// How many of 1000 writes lose their answer.
    pub api_loss: u64,
    /// How many calls of one operator are in flight at most.
    pub calls: CallLimits,
    /// The longest delay of a watch event.
    pub watch_lag: Micros,
    /// How many of 1000 watches must list again when they are opened again.
    pub watch_expired: u64,
    /// How many of 1000 lists show an older state.
    pub stale_lists: u64,
    /// How many of 1000 attempts must wait for a turn, as after an outage of many leases.
    pub attempts_wait: u64,
    /// How many leases of one operator may acquire and publish at once.
    pub permits: usize,
    /// From an event to the turn that it causes.
    pub engine_delay: (Micros, Micros),
    pub drift: bool,
    /// The nodes already have a marker of the configuration and a counter.
    pub installed: bool,
    /// The counter is ahead of all clocks, as after clocks were set back: only the status shows how far.
    pub clocks_behind: bool,
    pub faults: Vec<(Fault, u64)>,
    /// The average time from one fault to the next.
    pub gap: Micros,
    /// Before how many of 1000 effects a fault is injected.
    pub effect_faults: u64,
    pub chaos: Micros,
    /// After the faults the API server of this cluster does not come back, and the other cluster must work without it.
    pub stays_away: Option<usize>,
}

impl Swarm {
    pub fn draw(rng: &mut Rng, bugs: &[Bug]) -> Self {
        let bug = bugs.first().copied();
        let drawn = Self::draw_all(rng, bug);
        match bug {
            Some(bug) => drawn.focused(bug),
            None => drawn.widened(rng),
        }
    }

    fn draw_all(rng: &mut Rng, bug: Option<Bug>) -> Self {
        let clusters = if bug.is_some_and(needs_two_clusters) || rng.percent(35) { 2 } else { 1 };
        let processes = (0..rng.between(clusters as u64, 3) as usize).map(|process| process % clusters).collect();
        let clocks_behind =
            clusters == 1 && rng.percent(if bug == Some(Bug::SeedFromReadableFences) { 80 } else { 12 });
        let keys =
            rng.pick(&[&[0b001][..], &[0b001], &[0b011], &[0b001, 0b011], &[0b011, 0b110], &[0b001, 0b011, 0b110]]);
        let nodes = rng.weighted(&[(1, 6), (2, 6), (3, 60), (4, 8), (5, 20)]);
        let command_timeout = Millis(rng.pick(&[200, 500]));
        let mut specs = Self::draw_specs(rng);
        draw_durations(rng, command_timeout, &mut specs);
        let ttl = specs.iter().map(|spec| spec.lease * 1000).max().unwrap_or(0);
        let drift = rng.percent(60);
        let faults = Self::draw_faults(rng, clusters, clocks_behind, drift, bug);
        let gated = rng.pick(&[0, 0, 0b101, 0b111]);
        let clustered = rng.pick(&[0, 0, 0, 0, 0b001, 0b010, 0b111]) & !gated;
        let has = |fault| faults.iter().any(|&(other, _)| other == fault);
        let network = draw_network(rng, command_timeout, has);
        Self {
            quorum: Quorum::of(nodes).unwrap(),
            command_timeout,
            longest: Millis(ttl * rng.pick(&[100, 100, 150]) / 100),
            processes,
            clusters,
            elects: rng.percent(60),
            programs: 0,
            keys: keys.to_vec(),
            excludes: false,
            gated,
            clustered,
            made: 0,
            selected: None,
            pods: rng.between(1, 3) as usize,
            specs,
            network,
            node_delay: rng.pick(&[(1, 50), (1, 500), (MILLI, 30 * MILLI)]),
            limits: draw_limits(rng),
            api_delay: (MILLI, rng.pick(&[5 * MILLI, 50 * MILLI])),
            api_timeout: rng.pick(&[SECOND, 3 * SECOND]),
            api_loss: if has(Fault::ApiLoss) { rng.pick(&[50, 200, 500]) } else { 0 },
            calls: CallLimits { calls: rng.pick(&[1, 4, 16]), spare: 0, ..CallLimits::STANDARD },
            watch_lag: rng.pick(&[5 * MILLI, 50 * MILLI, 3 * SECOND]),
            watch_expired: if has(Fault::WatchExpired) { rng.pick(&[50, 300]) } else { 0 },
            stale_lists: if has(Fault::StaleList) { rng.pick(&[200, 700]) } else { 0 },
            attempts_wait: rng.pick(&[0, 0, 100, 500]),
            permits: rng.pick(&[PERMITS, PERMITS, 1, 2]),
            engine_delay: rng.pick(&[(20, 200), (20, 200), (20, 5 * MILLI), (MILLI, 300 * MILLI)]),
            drift,
            installed: clocks_behind || rng.percent(85),
            clocks_behind,
            faults: faults.into_iter().filter(|(fault, _)| !fault.is_of_messages()).collect(),
            gap: rng.pick(&[1, 4, 15]) * SECOND,
            effect_faults: rng.pick(&[0, 2, 10, 30]),
            chaos: rng.between(40, 150) * SECOND,
            stays_away: (clusters == 2 && rng.percent(50)).then(|| rng.index(2)),
        }
    }

    fn widened(mut self, rng: &mut Rng) -> Self {
        if rng.permille(MANY) {
            self = self.with_many_workloads();
            self.faults.extend(rng.percent(50).then_some((Fault::WebhookHangs, 10)));
            return self;
        }
        self.excludes = !of_place(self.gated, 0) && !of_place(self.clustered, 0) && rng.percent(30);
        let only_workloads = (0..self.keys.len()).all(|place| of_place(self.clustered, place));
        if only_workloads && !self.clocks_behind && rng.percent(90) {
            self.faults.push((Fault::RestoreEtcd, 10));
        }
        self
    }

    /// Policies that keep what a request is to stop, or refuse the status that says so, and requests.
    pub fn with_policies(mut self, rng: &mut Rng) -> Self {
        let stops = [
            (self.gated, Fault::KeepsPods),
            (self.clustered, Fault::KeepsReplicas),
            (self.gated | self.clustered, Fault::RefusesStatuses),
        ];
        let policies = stops.into_iter().filter(|(places, _)| *places != 0).map(|(_, policy)| (policy, 10));
        let policies: Vec<(Fault, u64)> = policies.filter(|_| rng.percent(80)).collect();
        if !policies.is_empty() {
            self.faults.extend(policies);
            let requests = [Fault::SuspendLease, Fault::Handover, Fault::NotAllowed];
            self.faults.extend(requests.into_iter().filter(|_| rng.percent(60)).map(|request| (request, 10)));
            // A new process does not know yet what runs. See [`Swarm::draw_faults`] for the steps.
            let restarts = !self.has(Fault::Step) && !self.has(Fault::SmallStep) && rng.percent(60);
            self.faults.extend(restarts.then_some((Fault::Crash, 10)));
        }
        self
    }

    /// So many workloads that the calls to the API server wait for each other.
    fn with_many_workloads(mut self) -> Self {
        self.keys = (0..WORKLOADS).map(|key| 1 << key).collect();
        (self.gated, self.clustered) = (0, u8::MAX);
        self.permits = PERMITS;
        self.calls = CallLimits::STANDARD;
        self.api_delay = (MILLI, 5 * MILLI);
        self.api_timeout = 5 * SECOND;
        self.engine_delay = (20, 200);
        self.chaos = self.chaos.min(60 * SECOND);
        // There are so many effects.
        self.effect_faults = self.effect_faults.min(1);
        self
    }

    /// Changes the parameters so that a planted bug shows sooner.
    fn focused(mut self, bug: Bug) -> Self {
        if bug == Bug::Core(Mutant::ExtendShortens) {
            self.elects = false;
            self.processes = vec![0, 0, self.clusters - 1];
        }
        if matches!(bug, Bug::NextStartsTooEarly | Bug::RefusedStopAccepted | Bug::EndMustBeShown) {
            self.gated = 0b111;
            self.clustered = 0;
        }
        if matches!(
            bug,
            Bug::StartFromCachedStatus
                | Bug::WorkloadIsStale
                | Bug::StoppedWithoutAnswer
                | Bug::ConsentIgnored
                | Bug::RestoreIgnored
        ) {
            self.gated = 0;
            self.clustered = 0b111;
        }
        if bug == Bug::CallsHoldAllPlaces {
            self = self.with_many_workloads();
            self.keys.truncate(OF_NAMESPACE + 10);
            (self.api_loss, self.stale_lists) = (0, 0);
            self.faults
                .retain(|(fault, _)| matches!(fault, Fault::Isolate | Fault::SuspendLease | Fault::WebhookHangs));
        }
        if matches!(bug, Bug::PermitKept | Bug::WritePermitKept) {
            self.permits = 1;
            self.keys = vec![0b001, 0b010, 0b100];
        }
        self
    }

    /// Seconds of lease and grace period, milliseconds between renewals. Most runs have several specs.
    fn draw_specs(rng: &mut Rng) -> Vec<LeaseSpec> {
        let linear = rng.percent(20);
        let min_delay = rng.pick(&[50, 100]);
        let max_delay = rng.pick(&[1000, 2000]);
        let limit = rng.percent(10).then_some(5);
        let unhealthy_after = rng.pick(&[None, Some(3), Some(8)]);
        let of = |(lease, renew, grace)| LeaseSpec {
            lease,
            renew,
            grace,
            unhealthy_after,
            linear,
            min_delay,
            max_delay,
            limit: limit.filter(|_| !linear),
            ..LeaseSpec::default()
        };
        let all = [(6, 1000, 2), (10, 2000, 3), (15, 3000, 5)];
        if rng.percent(30) {
            vec![of(rng.pick(&all))]
        } else {
            all[..rng.between(2, 3) as usize].iter().map(|&spec| of(spec)).collect()
        }
    }

    /// Clock steps and new processes exclude each other: a process that never observed the clock cannot detect that it was
    /// set, and no protocol gives a guarantee then. Small steps and drift exclude each other too: the margin covers only
    /// one of them. A lease that is created again loses its floor, which is unsafe with clocks that are behind.
    fn draw_faults(
        rng: &mut Rng,
        clusters: usize,
        clocks_behind: bool,
        drift: bool,
        bug: Option<Bug>,
    ) -> Vec<(Fault, u64)> {
        let known = rng.pick(&[12, 25, 50]);
        let mut faults: Vec<(Fault, u64)> = Vec::new();
        for &fault in Fault::ALL {
            if rng.percent(known) {
                faults.push((fault, rng.pick(&[1, 3, 10])));
            }
        }
        faults.extend(bug.map_or_else(|| draw_meddlers(rng), needed_faults));
        let steps = rng.percent(50) || bug == Some(Bug::Core(Mutant::ClockStepIgnored));
        faults.retain(|&(fault, _)| match fault {
            Fault::Step => steps && !clocks_behind,
            Fault::SmallStep => steps && !clocks_behind && !drift,
            Fault::Crash | Fault::Rollout => !steps || clocks_behind,
            Fault::Recreate | Fault::RestoreEtcd => !clocks_behind,
            Fault::LoseAll => clusters == 1 || !clocks_behind,
            _ => true,
        });
        if clocks_behind {
            // Only a process that has not read the status recently seeds a counter that is too low.
            faults.extend([(Fault::LoseAll, 3), (Fault::ApiRefuses, 10), (Fault::Crash, 10)]);
        }
        // The holder must change sometimes.
        faults.push((Fault::DeletePod, 1));
        faults
    }

    pub fn has(&self, fault: Fault) -> bool {
        self.faults.iter().any(|&(other, _)| other == fault)
    }

    pub fn rate(&self, rng: &mut Rng) -> u64 {
        if !self.drift {
            return TRUE_RATE;
        }
        match rng.below(3) {
            0 => SLOWEST,
            1 => FASTEST,
            _ => rng.between(SLOWEST, FASTEST),
        }
    }

    /// The longest lease of any spec, in milliseconds.
    pub fn ttl(&self) -> u64 {
        self.specs.iter().map(|spec| spec.lease * 1000).max().unwrap_or(0)
    }

    /// The longest delay between two attempts.
    pub fn longest_delay(&self) -> Micros {
        self.specs.iter().map(|spec| spec.max_delay).max().unwrap_or(0) * MILLI
    }

    /// I8b: how many calls of one kind one lease may cause within ten seconds. Of the status writes that say nothing new about the term, a
    /// process makes 20 in advance and one a second. Two processes that both decide for a while can see the nodes and the pods differently.
    pub fn call_bound(&self) -> u64 {
        20 + 30 * self.processes.len() as u64
    }

    /// The longest time that a key may exist after it was last set.
    pub fn key_life(&self) -> Micros {
        (self.ttl() * 1030 / 1000 + 10) * MILLI
    }

    /// The longest time that a node that may have lost data does not vote, from the time a process connects to it.
    pub fn quarantine(&self) -> Micros {
        (self.longest.0 * 1025 / 1000 + 10) * MILLI
    }
}

fn draw_network(rng: &mut Rng, command_timeout: Millis, has: impl Fn(Fault) -> bool) -> Network {
    Network {
        delay: (100, rng.pick(&[300, 2 * MILLI, 20 * MILLI])),
        slow: if has(Fault::Delay) { rng.pick(&[2, 20, 100]) } else { 0 },
        slowest: rng.pick(&[command_timeout.0 * MILLI, 2 * SECOND, 8 * SECOND]),
        loss: if has(Fault::Loss) { rng.pick(&[2, 20, 100]) } else { 0 },
        repeat: if has(Fault::Repeat) { rng.pick(&[2, 20, 200]) } else { 0 },
    }
}

/// Limits that a few leases can reach.
fn draw_limits(rng: &mut Rng) -> Limits {
    Limits {
        requests: rng.pick(&[1, 2, 128]),
        leases: rng.pick(&[1, 2, 100, 100]),
        keys: rng.pick(&[2, 200, 200]),
        calls: rng.pick(&[1, 2, 16]),
        part: rng.pick(&[1, 2]),
        in_flight: rng.pick(&[8, 1 << 14, 1 << 14]),
        ..Limits::STANDARD
    }
}

/// Bugs that only a second cluster shows.
const fn needs_two_clusters(bug: Bug) -> bool {
    matches!(bug, Bug::ContendsWithoutAnswer | Bug::UnpublishedForEver | Bug::KeeperWantsAgain | Bug::KeysNotRead)
}

/// Faults without which a bug breaks nothing.
fn needed_faults(bug: Bug) -> Vec<(Fault, u64)> {
    let faults: &[Fault] = match bug {
        Bug::MonotonicClock => &[Fault::Suspend],
        Bug::CachedRunId => &[Fault::RestartOlder, Fault::Promote],
        Bug::GoneIsProof => &[Fault::KillPod],
        Bug::ContendsWithoutAnswer | Bug::UnpublishedForEver | Bug::KeeperWantsAgain => &[Fault::ApiHangs],
        Bug::StaleListTrusted => &[Fault::StaleList, Fault::WatchExpired],
        Bug::NoBackOff => {
            return [Fault::Webhook, Fault::StripsLabel, Fault::Clamps, Fault::Fight].map(|fault| (fault, 10)).into();
        }
        Bug::ConsentIgnored => return [Fault::NoConsent, Fault::SharedWorkload].map(|fault| (fault, 10)).into(),
        Bug::CallsHoldAllPlaces => {
            return [Fault::Isolate, Fault::SuspendLease, Fault::WebhookHangs].map(|fault| (fault, 10)).into();
        }
        Bug::RestoreIgnored => return vec![(Fault::RestoreEtcd, 30)],
        Bug::StopNotTested => &[Fault::SuspendLease, Fault::Handover, Fault::NotAllowed],
        Bug::RefusedStopAccepted => &[Fault::KeepsPods, Fault::SuspendLease, Fault::Handover, Fault::NotAllowed],
        Bug::EndMustBeShown => &[Fault::RefusesStatuses, Fault::SuspendLease, Fault::Handover, Fault::NotAllowed],
        Bug::Core(Mutant::NoQuarantine) => &[Fault::RestartEmpty, Fault::Flush],
        Bug::Core(Mutant::CounterLossIgnored) => &[Fault::Flush],
        Bug::Core(Mutant::ClockStepIgnored) => &[Fault::Step],
        Bug::Core(Mutant::ExtendShortens) => &[Fault::ChangeSpec, Fault::KillPod],
        Bug::Core(Mutant::AbstentionIsNo) => &[Fault::Delay, Fault::Stall],
        Bug::Core(Mutant::ExtendSets) => &[Fault::Isolate, Fault::Freeze],
        _ => &[],
    };
    faults.iter().map(|&fault| (fault, 3)).collect()
}

/// In one of three runs, the durations are any that admission accepts, up to the least stop budget and the fewest renewals.
fn draw_durations(rng: &mut Rng, command_timeout: Millis, specs: &mut [LeaseSpec]) {
    if !rng.percent(35) {
        return;
    }
    for spec in specs {
        spec.grace = rng.between(1, 8);
        spec.renew = rng.between(2 * command_timeout.0, 4000);
        spec.lease = (3 * spec.renew).div_ceil(1000) + spec.grace + 1 + rng.pick(&[0, 0, 1, 4, 10]);
    }
}

/// In one of three runs, others write to the same objects.
fn draw_meddlers(rng: &mut Rng) -> Vec<(Fault, u64)> {
    if !rng.percent(35) {
        return Vec::new();
    }
    let all = [Fault::StripsLabel, Fault::Clamps, Fault::Fight, Fault::NoConsent, Fault::SharedWorkload];
    let chosen = all.into_iter().filter(|_| rng.percent(50)).collect::<Vec<_>>();
    chosen.into_iter().map(|fault| (fault, rng.pick(&[3, 10]))).collect()
}
