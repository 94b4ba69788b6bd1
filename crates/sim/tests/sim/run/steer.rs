//! Steers a series of runs towards what few of its runs have reached.
//!
//! A run that reaches a pair of faults in a phase of a lease that few runs before it have reached is kept, and its world is varied
//! further. Half of the runs draw a world of their own, so that the series does not stay where it began.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::chaos::bug::Bug;
use crate::chaos::rng::Rng;
use crate::chaos::swarm::Swarm;
use crate::check::coverage::{Cell, Coverage};
use crate::world::World;

/// A run: the seed of its first world, then the seed of each variation. Written `5/17/33`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lineage(Vec<u64>);

impl From<u64> for Lineage {
    fn from(seed: u64) -> Self {
        Self(vec![seed])
    }
}

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seeds: Vec<_> = self.0.iter().map(u64::to_string).collect();
        f.write_str(&seeds.join("/"))
    }
}

impl FromStr for Lineage {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split('/').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl Lineage {
    /// The world, drawn for the bugs in `drawn_for`, with `bugs` in it.
    pub fn world(&self, drawn_for: &[Bug], bugs: &[Bug]) -> World {
        let mut rng = Rng::new(self.0[0]);
        let mut swarm = Swarm::draw(&mut rng, drawn_for);
        for &seed in &self.0[1..] {
            rng = Rng::new(seed);
            swarm = swarm.varied(&mut rng);
        }
        World::new(swarm, rng, bugs)
    }
}

/// A cell that at most this number of runs has reached is rare.
const RARE: u64 = 3;
/// A world is varied so often at most: then it has little left of its first seed.
const VARIED: usize = 6;

/// What a series of runs has reached.
#[derive(Default)]
pub struct Steering {
    reached: BTreeMap<Cell, u64>,
    /// The runs that reached a rare cell, with those cells.
    kept: Vec<(Lineage, Vec<Cell>)>,
}

impl Steering {
    /// The next run.
    pub fn next(&self, seed: u64) -> Lineage {
        let mut rng = Rng::new(!seed);
        if rng.percent(50) {
            return seed.into();
        }
        let rare = |cells: &[Cell]| cells.iter().filter(|cell| self.reached[cell] <= RARE).count() as u64;
        let weights: Vec<_> = self.kept.iter().enumerate().map(|(place, (_, cells))| (place, rare(cells))).collect();
        if weights.iter().all(|(_, weight)| *weight == 0) {
            return seed.into();
        }
        let mut parent = self.kept[rng.weighted(&weights)].0.clone();
        parent.0.push(seed);
        parent
    }

    /// Learns what a run has reached.
    pub fn learn(&mut self, run: &Lineage, coverage: &Coverage) {
        let mut rare = Vec::new();
        for &cell in coverage.cells() {
            let count = self.reached.entry(cell).or_default();
            *count += 1;
            if *count <= RARE {
                rare.push(cell);
            }
        }
        if !rare.is_empty() && run.0.len() <= VARIED {
            self.kept.push((run.clone(), rare));
        }
    }
}
