//! Random pauses and steps.

use alloc::collections::BTreeMap;
use alloc::vec;
use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Pauses of the process, also with disconnections, never give a ticket; a step of one node always does.
    #[test]
    fn random_pauses_and_steps(
        nodes in prop::sample::select(vec![3_u8, 5]),
        delays in prop::collection::vec((0_u64..8, 0_u64..8), 5),
        rates in prop::collection::vec(-4_i64..=4, 5),
        events in prop::collection::vec((0_u8..4, 0_u8..5, 100_u64..5000, 0_u64..4000), 1..12),
    ) {
        let mut world = World::new(nodes, None);
        for (server, (delay, rate)) in world.servers.iter_mut().zip(delays.into_iter().zip(rates)) {
            (server.there, server.back) = delay;
            server.offset -= i64::try_from(world.now).unwrap() * rate / 1000;
            server.rate = rate;
        }
        world.run(3000);
        let mut steps: BTreeMap<u8, usize> = BTreeMap::new();
        let mut pauses = 0;
        for (kind, node, millis, rest) in events {
            let node = node % nodes;
            match kind {
                0 => {
                    world.pause(millis);
                    pauses += 1;
                }
                1 => {
                    // A step that coincides with a pause gives tickets to all.
                    world.run(3000);
                    world.step(node, i64::try_from(millis).unwrap());
                    *steps.entry(node).or_default() += 1;
                    // Each step is judged before the next event.
                    world.run(3000);
                }
                2 => {
                    world.disconnect(node);
                    world.run(rest / 4);
                    world.pause(millis);
                    pauses += 1;
                    world.run(rest);
                    world.connect(node);
                    world.run(3000);
                }
                _ => {
                    (0..nodes).for_each(|node| world.disconnect(node));
                    // When three nodes are back, drift can explain a shorter pause: then the doubt lasts for one longest lease.
                    world.pause(millis.max(200));
                    pauses += 1;
                    for back in 0..nodes {
                        world.connect((back + node) % nodes);
                        world.run(rest);
                    }
                }
            }
            world.run(rest);
        }
        world.run(4000);
        let mut tickets: BTreeMap<u8, usize> = BTreeMap::new();
        world.stepped().into_iter().for_each(|node| *tickets.entry(node).or_default() += 1);
        prop_assert_eq!(tickets, steps);
        prop_assert!(world.own_jumps() <= pauses && !world.judge.in_question(world.own()));
    }
}
