//! A program that takes locks with the library on the servers of an operator.

use std::time::Duration;

use redislease_lab::Result;
use redislease_locker::{AcquireError, Locker, LockerBuilder, NodeState};
use serde_json::json;

use crate::holder::held_by;
use crate::quorum::quorum;
use crate::support::{SOON, shared};

/// The program names the servers as the RedisQuorum does.
fn program(prefix: &str) -> LockerBuilder {
    let servers = shared().installation.redis().iter().enumerate();
    let builder = Locker::builder::<&str>([]).prefix(prefix).longest_lease(Duration::from_secs(10));
    servers.fold(builder, |builder, (index, server)| {
        builder.node(format!("redis-{index}"), format!("redis://{}", server.address()))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_takes_locks_on_servers_that_an_operator_has_admitted() -> Result<()> {
    // No other test uses this prefix: only the operator can have written the marker.
    let prefix = "beside";
    let installation = &shared().installation;
    installation.apply(&quorum(installation, "beside", &json!({"keyPrefix": prefix, "maxLeaseDuration": "10s"})))?;
    let (lease, first) = held_by(installation, "beside", 3, &json!({"quorumRef": {"name": "beside"}}))?;

    let refused = program(prefix).build().expect("valid");
    installation.wait_for("the mismatch", SOON, || {
        let nodes = refused.nodes();
        if nodes.iter().all(|node| node.state == NodeState::Misconfigured) { Ok(()) } else { Err(format!("{nodes:?}")) }
    })?;
    let error = refused.lock("k").try_acquire().await.expect_err("it is refused").to_string();
    let says = "call beside_operator() with the same node names, prefix and longest lease";
    assert!(error.contains(says), "{error}");

    let locker = program(prefix).namespace("beside").beside_operator().build().expect("valid");
    locker.ready(SOON).await.expect("the servers vote already");
    let guard = locker.lock("k").acquire().await.expect("nobody has it");
    assert!(Some(guard.token()) > first.token(), "one counter: {} after {first}", guard.token());
    guard.verify().await.expect("the servers hold it");
    // The key of the operator's lease is a lock like any other.
    match locker.lock("billing").try_acquire().await {
        Err(AcquireError::Held { by, .. }) => assert!(by.contains(first.holder().unwrap_or_default()), "{by}"),
        other => panic!("{other:?}"),
    }
    guard.release().await;
    assert_eq!(lease.state()?.token(), first.token(), "the term is kept");
    Ok(())
}
