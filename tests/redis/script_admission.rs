//! When a node votes: its marker and its counter.

use super::*;

#[tokio::test]
async fn observe_leaves_a_marker_that_names_this_server() {
    let mut server = Server::start().await;
    let ours = server.marker.clone();
    assert_eq!(server.observe("me", 1, None).await, ours);
    let ticket = |run_id: &str, nonce| Marker::Wait { run_id: run_id.into(), nonce };
    for (standing, found) in [
        (None, ticket("me", 2)),
        (Some("me2:1:f00d"), ticket("me", 2)),
        (Some("m:1:f00d"), ticket("me", 2)),
        (Some("wait:you:00000000000000000000000000000009"), ticket("me", 2)),
        (Some("what"), ticket("me", 2)),
        (Some("wait:me:00000000000000000000000000000009"), ticket("me", 9)),
        (Some("me:7:beef"), "me:7:beef".parse().unwrap()),
    ] {
        match standing {
            Some(standing) => server.set("rl:marker", standing),
            None => drop(server.redis.command(&["DEL", "rl:marker"]).unwrap()),
        }
        assert_eq!(server.observe("me", 2, None).await, found, "{standing:?}");
        assert_eq!(support::get(&server.redis, "rl:marker"), Some(found.to_string()));
    }
    server.set("rl:marker", &ours.to_string());
    assert_eq!(
        server.observe("me", 3, Some(&ticket("me", 1))).await,
        ours,
        "not the marker at the time of the clock step"
    );
    assert_eq!(server.observe("me", 3, Some(&ours)).await, ticket("me", 3), "the marker at the time of the clock step");
    for (nonce, lost) in (4..).zip(LOST_FENCES) {
        server.lose_fence(lost);
        assert_eq!(
            server.observe("me", nonce, None).await,
            ticket("me", nonce - 1),
            "a node that waits needs no counter"
        );
        server.set("rl:marker", &ours.to_string());
        assert_eq!(
            server.observe("me", nonce, None).await,
            ticket("me", nonce),
            "a node that votes needs it: {lost:?}"
        );
    }
}

#[tokio::test]
async fn an_empty_server_admits_no_ticket() {
    let mut server = Server::start().await;
    server.redis.command(&["FLUSHALL"]).unwrap();
    assert_eq!(server.admit(&Marker::Wait { run_id: "me".into(), nonce: 3 }, 10).await, None);
    assert_eq!(server.fence(), None);
}

/// Somebody deleted or overwrote it, or the server evicted it.
#[tokio::test]
async fn a_node_that_lost_its_counter_begins_no_term_and_gives_up_its_marker_until_it_is_admitted_again() {
    let mut server = Server::start().await;
    server.term(&["k"], 1, 50).await;
    let grant = server.granted(&["p"], 2).await;
    for lost in LOST_FENCES {
        for op in [confirm(2, grant, 99), acquire(3)] {
            server.lose_fence(lost);
            server.set("rl:marker", &server.marker.to_string());
            assert_eq!(server.ask(&["k"], &extend(1, 50)).await, Vote::Extended, "the term goes on");
            assert_eq!(server.read_fence().await, (Allegiance::Nobody, Token(0)), "{lost:?}");
            assert_eq!(server.answer(&["p"], &op).await, Answer::NotAdmitted, "{lost:?} {op:?}");
            assert_eq!(server.value("p"), Some(format!("p:2:{grant}:m")), "{op:?}");
            let left = (server.fence(), support::get(&server.redis, "rl:marker"));
            assert_eq!(left, (lost.map(str::to_owned), None), "{op:?}");
        }
        let waits = server.observe("me", 7, None).await;
        assert_eq!(server.admit(&waits, 60).await, Some(server.marker.clone()), "{lost:?}");
        assert_eq!(server.fence().as_deref(), Some("60"), "{lost:?}");
    }
}
