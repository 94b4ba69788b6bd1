//! Panics in the work on one quorum.

use redislease_plan::plan::Authority;

use super::super::tests::{parts, quorum};
use super::*;
use crate::operator::authority::Grant;

#[tokio::test]
async fn a_panic_in_an_election_ends_the_authority_over_this_quorum_only() {
    let (parts, mut inputs, panics) = parts();
    let keeper = parts.replica.keeper.clone();
    let (events, _happened) = mpsc::unbounded_channel();
    let (unused, _unused) = mpsc::unbounded_channel();
    let mut controller = Controller::new(parts, events, unused);
    for name in ["a", "b"] {
        controller.take(quorum(name));
        controller.entries.get_mut(name).unwrap().grant = Grant::of(Authority::Lead);
    }
    let authority = |controller: &Controller, name: &str| controller.entries[name].grant.authority(clock::now());
    assert_eq!(["a", "b"].map(|name| authority(&controller, name)), [Authority::Lead; 2]);
    while inputs.try_recv().is_ok() {}

    assert!(!controller.contained("a", |_| panic!("planned by the test")));
    assert_eq!((panics.operator.get(), authority(&controller, "a")), (1, Authority::Lead), "no election was concerned");
    controller.election_panicked("a");
    assert_eq!(["a", "b"].map(|name| authority(&controller, name)), [Authority::Follow, Authority::Lead]);
    assert!(matches!(inputs.try_recv(), Ok(Message::Authority(name)) if name == "a"));
    keeper.shutdown().await;
}
