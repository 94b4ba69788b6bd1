//! How the nodes of a process are admitted.

use redislease_core::admission::Standing;
use redislease_core::seed::Fences;

use crate::check::coverage::Sight;
use crate::check::trace::Note;
use crate::world::World;

impl World {
    /// The admission of a node has another standing.
    pub fn sees_standing(&mut self, process: usize, node: usize, standing: &Standing) {
        self.note(Note::Node { process, node, standing });
        let seeded_by = &mut self.processes[process].peers[node].seen.seeded_by;
        match standing {
            Standing::Admitted => {
                if let Some(seeded_by) = seeded_by.take() {
                    self.coverage.saw(seeded_by);
                    self.coverage.saw(Sight::ReAdmitted);
                }
            }
            Standing::Seeding(Some(_)) => {
                *seeded_by = None;
                self.coverage.saw(Sight::SeedingRefused);
            }
            _ => {}
        }
    }

    /// The fences were read from which the counter of a node is computed.
    pub fn sees_fences(&mut self, process: usize, node: usize, fences: Option<&Fences>) {
        let seeded_by = |fences: &Fences| {
            let by_others = fences.remembering() >= self.swarm.quorum.majority();
            if by_others { Sight::SeededByOthers } else { Sight::SeededByClocks }
        };
        self.processes[process].peers[node].seen.seeded_by = fences.map(seeded_by);
    }
}
