//! What one seed's world is made of. Each seed knows only some faults, with its own weights: runs in which everything
//! happens at once hide most bugs from each other.

use redislease_core::backoff::{Backoff, Strategy};
use redislease_core::lease;
use redislease_core::quorum::Quorum;
use redislease_core::time::{Drift, Millis};

use crate::clock::{FASTEST, MILLI, Micros, SECOND, SLOWEST, TRUE_RATE};
use crate::fault::Fault;
use crate::rng::Rng;

/// How messages between processes and servers travel.
#[derive(Clone, Debug)]
pub struct Weather {
    pub delay: (Micros, Micros),
    /// In a thousand messages: so many take up to `slowest` instead.
    pub slow: u64,
    pub slowest: Micros,
    pub loss: u64,
    pub repeat: u64,
}

#[derive(Clone, Debug)]
pub struct Swarm {
    pub nodes: u8,
    /// The cluster of each process.
    pub processes: Vec<usize>,
    pub clusters: usize,
    /// The keys of each resource, as bits; the same in every cluster.
    pub keys: Vec<u8>,
    pub pods: usize,
    pub lease: lease::Config,
    pub longest: Millis,
    pub heartbeat: Millis,
    pub weather: Weather,
    pub api_delay: (Micros, Micros),
    pub api_loss: u64,
    /// The longest a watch event may be under way.
    pub watch_lag: Micros,
    pub drift: bool,
    /// The nodes know the configuration and a counter from before.
    pub installed: bool,
    /// The counter runs ahead of all clocks, as after clocks that were set back: only the status knows how far.
    pub clocks_behind: bool,
    pub faults: Vec<(Fault, u64)>,
    /// From one fault to the next, on average.
    pub gap: Micros,
    /// In a thousand effects: so many meet a fault just before.
    pub strikes: u64,
    pub chaos: Micros,
}

impl Swarm {
    pub fn draw(rng: &mut Rng) -> Self {
        let clusters = if rng.percent(35) { 2 } else { 1 };
        let count = rng.between(clusters as u64, 3) as usize;
        let processes = (0..count).map(|process| process % clusters).collect();
        let clocks_behind = clusters == 1 && rng.percent(20);
        let keys =
            rng.pick(&[&[0b001][..], &[0b001], &[0b011], &[0b001, 0b011], &[0b011, 0b110], &[0b001, 0b011, 0b110]]);
        let (ttl, renew, grace) = rng.pick(&[(6, 1000, 2), (10, 2000, 3), (15, 3000, 5)]);
        let backoff = Backoff {
            strategy: if rng.percent(80) { Strategy::Exponential } else { Strategy::Linear },
            min: Millis(rng.pick(&[50, 100])),
            max: Millis(rng.pick(&[1000, 2000])),
            limit: rng.percent(10).then_some(5),
            jitter: 10,
        };
        let nodes = if rng.percent(20) { 5 } else { 3 };
        let lease = lease::Config {
            quorum: Quorum::of(nodes).unwrap(),
            ttl: Millis::from_secs(ttl),
            renew_interval: Millis(renew),
            stop_budget: Millis::from_secs(grace + 1),
            command_timeout: Millis(rng.pick(&[200, 500])),
            drift: Drift::STANDARD,
            backoff,
            deadline: lease::OnDeadline::Seal,
        };
        let faults = Self::draw_faults(rng, clusters, clocks_behind);
        let knows = |fault| faults.iter().any(|&(other, _)| other == fault);
        let weather = Weather {
            delay: (100, rng.pick(&[300, 2 * MILLI, 20 * MILLI])),
            slow: if knows(Fault::Delay) { rng.pick(&[2, 20, 100]) } else { 0 },
            slowest: rng.pick(&[lease.command_timeout.0 * MILLI, 2 * SECOND, 8 * SECOND]),
            loss: if knows(Fault::Loss) { rng.pick(&[2, 20, 100]) } else { 0 },
            repeat: if knows(Fault::Repeat) { rng.pick(&[2, 20, 200]) } else { 0 },
        };
        Self {
            nodes,
            processes,
            clusters,
            keys: keys.to_vec(),
            pods: rng.between(1, 3) as usize,
            longest: Millis(lease.ttl.0 * rng.pick(&[100, 100, 150]) / 100),
            heartbeat: Millis(1000),
            weather,
            api_delay: (MILLI, rng.pick(&[5 * MILLI, 50 * MILLI])),
            api_loss: if knows(Fault::ApiLoss) { rng.pick(&[50, 200, 500]) } else { 0 },
            watch_lag: rng.pick(&[5 * MILLI, 50 * MILLI, 3 * SECOND]),
            drift: rng.percent(60),
            installed: clocks_behind || rng.percent(85),
            clocks_behind,
            faults: faults.into_iter().filter(|(fault, _)| !fault.of_messages()).collect(),
            gap: rng.pick(&[1, 4, 15]) * SECOND,
            strikes: rng.pick(&[0, 2, 10, 30]),
            chaos: rng.between(60, 240) * SECOND,
            lease,
        }
    }

    /// Clock steps and new processes exclude each other: a process that never saw the clock before cannot see that it
    /// was set, and no protocol promises anything then. A resource made again forgets the floor, which clocks that
    /// are behind do not forgive.
    fn draw_faults(rng: &mut Rng, clusters: usize, clocks_behind: bool) -> Vec<(Fault, u64)> {
        let known = rng.pick(&[15, 30, 60]);
        let mut faults: Vec<(Fault, u64)> = Vec::new();
        for fault in Fault::ALL {
            if rng.percent(known) {
                faults.push((fault, rng.pick(&[1, 3, 10])));
            }
        }
        let steps = rng.percent(50);
        faults.retain(|&(fault, _)| match fault {
            Fault::Step => steps && !clocks_behind,
            Fault::Crash => !steps || clocks_behind,
            Fault::Recreate => !clocks_behind,
            Fault::LoseAll => clusters == 1 || !clocks_behind,
            _ => true,
        });
        if clocks_behind {
            // Only a process that has not read the status lately seeds from below.
            faults.extend([(Fault::LoseAll, 3), (Fault::ApiKilled, 10), (Fault::Crash, 10)]);
        }
        // Somebody has to change hands now and then.
        faults.push((Fault::DeletePod, 1));
        faults
    }

    pub fn knows(&self, fault: Fault) -> bool {
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

    /// The longest a key may stand after it was last set.
    pub fn key_life(&self) -> Micros {
        (self.lease.ttl.0 * 1030 / 1000 + 10) * MILLI
    }

    /// The longest a node that may have forgotten goes without a vote, once somebody looks at it.
    pub fn quarantine(&self) -> Micros {
        (self.longest.0 * 1025 / 1000 + 10) * MILLI
    }
}
