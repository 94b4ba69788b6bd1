//! The roles of leases that do not exist.

use super::*;

#[test]
fn labels_of_leases_that_do_not_exist_are_removed_once_everything_is_listed() {
    let mut world = World::new();
    let labelled = |lease: &str, role: &str| {
        let mut pod = pod("p");
        pod.labels.insert(format!("lease.redislease.io/{lease}"), role.to_owned());
        pod.annotations = [(format!("token.redislease.io/{lease}"), "7".to_owned())].into_iter().collect();
        pod
    };
    world.engine.take(Input::Lease(Watched::ListBegins));
    world.engine.take(Input::Lease(Watched::Unreadable(Box::new(lease("n", "broken").metadata))));
    world.engine.take(Input::Pod(Watched::ListBegins));
    let mut carrier = labelled("gone", "standby");
    carrier.labels.extend(labelled("broken", "active").labels);
    world.engine.take(Input::Pod(Watched::Seen(Box::new(carrier))));
    world.engine.take(Input::Pod(Watched::ListEnds));
    assert_eq!(world.fake.done(), [""; 0], "leases are not listed");
    world.engine.take(Input::Lease(Watched::ListEnds));
    let removed = "gone on p: None None";
    assert_eq!(world.fake.done(), ["floors complete", "broken on p: Some(Standby) None", removed]);
    let answer = |outcome| Input::OrphanWritten {
        namespace: "n".into(),
        pod: "uid-p".into(),
        lease: "gone".into(),
        answer: role(outcome),
    };
    world.engine.take(answer(RoleOutcome::Conflict));
    assert_eq!(world.fake.done(), [removed], "again");
    world.engine.take(answer(RoleOutcome::Written));
    assert_eq!(world.fake.done(), [""; 0]);
    let metadata = lease("n", "broken").metadata;
    world.engine.take(Input::Lease(Watched::DeletedUnreadable(Box::new(metadata))));
    assert_eq!(world.fake.done(), ["broken on p: None None", removed]);
}
