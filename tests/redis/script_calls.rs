//! Several requests in one call of a script.

use super::*;

#[tokio::test]
async fn a_request_that_fails_affects_no_other_request_of_its_call() {
    let mut server = Server::start().await;
    let grant = server.granted(&["p"], 2).await;
    server.redis.command(&["LPUSH", &server.lock("list"), "mine"]).unwrap();
    let asked = [
        ("free", acquire(1)),
        ("list", acquire(3)),
        ("p", confirm(2, grant, 50)),
        ("free", acquire(4)),
        ("after", acquire(5)),
        ("list", confirm(6, 1, 1)),
    ];
    let answers = server.ask_all(&asked).unwrap();
    assert!(matches!(answers[0], Ok(Answer::Vote(Vote::Granted(Grant::Numbered(2))))), "{answers:?}");
    assert!(matches!(&answers[1], Err(code) if code == "WRONGTYPE"), "{answers:?}");
    assert!(matches!(answers[2], Ok(Answer::Vote(Vote::Confirmed { .. }))), "{answers:?}");
    let Ok(Answer::Vote(Vote::Refused { by, .. })) = &answers[3] else { panic!("{answers:?}") };
    assert_eq!((by.stage, by.attempt), (Stage::Pending, Attempt(1)), "the first request of the call has the key");
    assert!(
        matches!(answers[4], Ok(Answer::Vote(Vote::Granted(Grant::Numbered(51))))),
        "above the confirmed token: {answers:?}"
    );
    assert!(matches!(&answers[5], Err(code) if code == "WRONGTYPE"), "{answers:?}");
    assert_eq!(server.value("p").as_deref(), Some("t:2:50:m"));
    assert_eq!(server.fence().as_deref(), Some("51"));
}

#[tokio::test]
async fn a_full_server_refuses_all_requests_of_a_call_and_runs_its_ends() {
    let mut server = Server::start().await;
    server.term(&["k"], 1, 50).await;
    let grant = server.granted(&["p"], 2).await;
    server.redis.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let error = server.ask_all(&[("p", confirm(2, grant, 60)), ("free", acquire(3))]).unwrap_err();
    assert_eq!(redislease_lock::nodes::Reason::from(&error), redislease_lock::nodes::Reason::Oom, "{error}");
    assert_eq!(server.value("p"), Some(format!("p:2:{grant}:m")), "nothing was executed");
    assert_eq!(server.ask(&["k"], &extend(1, 50)).await, Vote::Extended);
    assert_eq!(server.observe("me", 1, None).await, server.marker.clone());
    let ends = [("k", seal(1)), ("p", release(2, Stages::All)), ("k", release(1, Stages::Pending))];
    let answers = server.ask_all(&ends).unwrap();
    assert!(matches!(answers[0], Ok(Answer::Vote(Vote::Sealed { .. }))), "{answers:?}");
    assert!(matches!(answers[1], Ok(Answer::Vote(Vote::Released(1)))), "{answers:?}");
    assert!(matches!(answers[2], Ok(Answer::Vote(Vote::Released(0)))), "a sealed key stays: {answers:?}");
    server.redis.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    assert_eq!((server.value("free"), server.value("p")), (None, None));
    assert_eq!(server.value("k").as_deref(), Some("s:1:50:m"));
}

#[tokio::test]
async fn a_refused_delete_fails_the_releases_of_a_call_and_no_seal() {
    let mut server = Server::start().await;
    server.term(&["k"], 1, 50).await;
    server.granted(&["p"], 2).await;
    server.redis.command(&["ACL", "SETUSER", "default", "-del"]).unwrap();
    let answers = server.ask_all(&[("k", seal(1)), ("p", release(2, Stages::All))]).unwrap();
    assert!(matches!(answers[0], Ok(Answer::Vote(Vote::Sealed { .. }))), "{answers:?}");
    assert!(answers[1].is_err(), "{answers:?}");
    assert!(server.value("p").is_some());
}

/// Each write goes to the replicas and into the log of the server too.
#[tokio::test]
async fn a_call_writes_the_fence_once_for_all_confirms_and_not_for_refusals() {
    let mut server = Server::start().await;
    let mut grants = Vec::new();
    for (key, attempt) in [("a", 1), ("b", 2), ("c", 3)] {
        grants.push(server.granted(&[key], attempt).await);
    }
    let writes = || support::calls(&server.redis, "set");
    let before = writes();
    let asked = [("a", confirm(1, grants[0], 50)), ("b", confirm(2, grants[1], 70)), ("c", confirm(3, grants[2], 60))];
    let answers = server.ask_all(&asked).unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Answer::Vote(Vote::Confirmed { .. })))), "{answers:?}");
    assert_eq!(writes(), before + 4, "three keys and the fence");
    assert_eq!(server.fence().as_deref(), Some("70"));

    let before = writes();
    let answers = server.ask_all(&[("a", acquire(4)), ("b", acquire(5))]).unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Answer::Vote(Vote::Refused { .. })))), "{answers:?}");
    assert_eq!(writes(), before);

    // The fence is raised by a confirm that holds, and not by one that misses.
    let answers = server.ask_all(&[("a", confirm(1, grants[0], 50)), ("b", confirm(9, grants[1], 90))]).unwrap();
    assert!(matches!(answers[1], Ok(Answer::Vote(Vote::Miss(Some(_))))), "{answers:?}");
    assert_eq!(server.fence().as_deref(), Some("70"));
}

#[tokio::test]
async fn a_call_writes_the_fence_once_for_all_acquires() {
    let server = Server::start().await;
    let propose = |attempt: u128, token| Op::Acquire {
        attempt: Attempt(attempt),
        proposal: Some(Token(token)),
        ttl: TTL,
        holder: Holder("m".into()),
    };
    let writes = || support::calls(&server.redis, "set");
    let before = writes();
    let asked = [("a", propose(1, 40)), ("b", propose(2, 41)), ("c", propose(3, 41)), ("d", acquire(4))];
    let answers = server.ask_all(&asked).unwrap();
    let granted = |grant| Ok(Answer::Vote(Vote::Granted(grant)));
    let proposed = |token| granted(Grant::Proposed(Token(token)));
    let expected: [Result<Answer, String>; 4] =
        [proposed(40), proposed(41), granted(Grant::Numbered(42)), granted(Grant::Numbered(43))];
    assert_eq!(answers, expected);
    assert_eq!(writes(), before + 5, "four keys and the fence, which is known before the first");
}
