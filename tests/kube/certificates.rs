//! A quorum with mutual TLS and a password: certificates and password are replaced while leases are held.

use std::sync::Arc;
use std::time::Duration;

use redislease_lab::{
    Authority, Identity, Installation, InstallationOptions, Lease, LeaseState, PooledControlPlane, QuorumState,
    RedisOptions, RedisServer, RedisTls, Result, SYSTEM, nodes,
};
use serde_json::{Value, json};

use crate::support::{AFTER_ONE_LEASE, FIRST_ELECTION, options, secret, throughout};

/// How many leases are held.
const LEASES: usize = 10;
/// The operator reads secrets every 15 s.
const SECRET_READ: Duration = Duration::from_secs(40);

/// The time for what must be so already.
const NOW: Duration = Duration::from_millis(1);

/// A secret as cert-manager writes it.
fn certificates(ca: &str, client: &Identity) -> Value {
    let data = json!({"ca.crt": ca, "tls.crt": client.certificate, "tls.key": client.key});
    let mut secret = secret("redis-tls", &data);
    secret["type"] = json!("kubernetes.io/tls");
    secret
}

fn password(password: &str) -> Value {
    secret("redis-password", &json!({"password": password}))
}

/// What the servers have when one authority signs everything.
fn server_tls(authority: &Authority) -> Result<RedisTls> {
    Ok(RedisTls { identity: authority.sign(&["localhost", "127.0.0.1"])?, client_ca: Some(authority.certificate()) })
}

/// Three servers that talk to clients with a certificate only, and an installation that uses them.
fn install(authority: &Authority) -> Result<Installation> {
    let start = || {
        let (password, tls) = (Some("first".to_owned()), Some(server_tls(authority)?));
        RedisServer::start_with(&RedisOptions { password, tls, ..RedisOptions::default() }).map(Arc::new)
    };
    let redis = (0..3).map(|_| start()).collect::<Result<Vec<_>>>()?;
    let nodes = nodes(redis.iter().map(|server| server.tls_address().expect("it listens with TLS")));
    let options = InstallationOptions {
        password: Some("first".into()),
        quorum: json!({"nodes": nodes, "tls": {"secretRef": {"name": "redis-tls"}}}),
        ..options()
    };
    Installation::install(&options, PooledControlPlane::take()?, redis)
}

/// Closes the operator's connections to this server, and waits until it uses a new one.
fn reconnect(installation: &Installation, index: usize) -> Result<()> {
    let server = &installation.redis()[index];
    let with_tls = format!(" laddr={} ", server.tls_address().expect("it listens with TLS"));
    // Only after the login a connection runs scripts. The status of the RedisQuorum can still be that of before.
    let in_use = |known: &[String]| -> std::result::Result<Vec<String>, String> {
        let list = server.command(&["CLIENT", "LIST"])?.text().unwrap_or_default();
        let lines = list.lines().filter(|line| line.contains(&with_tls) && line.contains(" cmd=evalsha "));
        let ids = lines.filter_map(|line| line.split(' ').next()).filter(|id| !known.iter().any(|other| other == id));
        let ids: Vec<String> = ids.map(str::to_owned).collect();
        if ids.is_empty() { Err(list) } else { Ok(ids) }
    };
    let before = installation.wait_for(&format!("redis-{index} is connected"), SECRET_READ, || in_use(&[]))?;
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])?;
    installation.wait_for(&format!("redis-{index} is connected again"), SECRET_READ, || in_use(&before)).map(drop)
}

/// Whether the condition Ready has this reason and says this.
fn reports(quorum: &QuorumState, reason: &str, says: &str) -> bool {
    quorum.condition("Ready").is_some_and(|ready| ready.reason == reason && ready.message.contains(says))
}

fn secret_is_missing(quorum: &QuorumState) -> bool {
    let says = "spec.tls.secretRef names secret redislease-system/redis-tls, which does not exist: create it with the key `ca.crt`";
    reports(quorum, "InvalidReference", says)
}

fn all_nodes_vote(installation: &Installation, limit: Duration) -> Result<()> {
    installation.wait_for_quorum("all nodes vote", limit, |quorum| quorum.count("Up") == 3).map(drop)
}

/// Leases, each with its state when it was held for the first time.
struct Held<'a>(Vec<(LeaseState, Lease<'a>)>);

impl<'a> Held<'a> {
    fn wait(installation: &'a Installation) -> Result<Self> {
        installation.deployment("tls", "billing", 3)?;
        let spec = json!({"candidates": {"selector": {"matchLabels": {"app": "billing"}}}});
        let hold = |number| {
            let lease = installation.lease("tls", &format!("lease-{number}"), &spec)?;
            Ok((lease.wait("held", FIRST_ELECTION, LeaseState::is_active)?, lease))
        };
        (0..LEASES).map(hold).collect::<Result<_>>().map(Self)
    }

    /// How many of them have another term now, or none.
    fn moved(&self) -> Result<usize> {
        let mut moved = 0;
        for (before, lease) in &self.0 {
            moved += usize::from(!lease.state()?.continues(before));
        }
        Ok(moved)
    }
}

/// The secrets get the new values beside the old authority, then one server after the other. Each connection is opened anew
/// after each step.
fn replace_all(installation: &Installation, first: &Authority, second: &Authority, held: &Held<'_>) -> Result<()> {
    let both = [first.certificate(), second.certificate()].concat();
    installation.apply(&certificates(&both, &second.sign(&["redislease"])?))?;
    installation.apply(&password("second"))?;
    for (index, server) in installation.redis().iter().enumerate() {
        reconnect(installation, index)?;
        server.set_tls(&server_tls(second)?)?;
        server.set_password("second")?;
        reconnect(installation, index)?;
        // A wait that fails prints the operator's log.
        installation.wait_for(&format!("no lease moves with redis-{index}"), NOW, || match held.moved() {
            Ok(0) => Ok(()),
            moved => Err(format!("{moved:?}")),
        })?;
    }
    Ok(())
}

/// A rollout starts a process that reaches no server, and must not replace the one that does. The new one claims to lead after ten seconds.
fn a_rollout_waits(installation: &Installation, held: &Held<'_>, name: &str) -> Result<()> {
    let successor = installation.start_operator(name, &[])?;
    throughout(Duration::from_secs(17), |after| {
        let (code, page) = successor.get("/readyz")?;
        assert_eq!((code, held.moved()?), (503, 0), "{after:?} after its start: {page}");
        Ok(())
    })?;
    let (_, page) = successor.get("/readyz")?;
    assert!(page.contains("quorums: not every node was tried yet, or only others reach a majority"), "{page}");
    successor.stop()?;
    Ok(())
}

#[test]
fn certificates_and_password_are_replaced_and_no_lease_moves() -> Result<()> {
    let (first, second) = (Authority::new("first")?, Authority::new("second")?);
    let installation = install(&first)?;
    let operator = installation.start_operator("operator-0", &[])?;
    installation.wait_for_quorum("the missing secret is reported", FIRST_ELECTION, secret_is_missing)?;
    installation.apply(&certificates(&first.certificate(), &first.sign(&["redislease"])?))?;
    all_nodes_vote(&installation, SECRET_READ + FIRST_ELECTION)?;
    let held = Held::wait(&installation)?;

    // A secret that is deleted later ends nothing.
    installation.control_plane().kubectl(&["delete", "secret", "redis-tls", "--namespace", SYSTEM])?;
    installation.wait_for_quorum("the missing secret is reported", SECRET_READ, secret_is_missing)?;
    reconnect(&installation, 0)?;
    assert_eq!(held.moved()?, 0, "the last certificates stay in use");
    a_rollout_waits(&installation, &held, "operator-1")?;

    replace_all(&installation, &first, &second, &held)?;
    // A new process has the new values only, and continues every term.
    operator.restart()?;
    all_nodes_vote(&installation, SECRET_READ)?;
    operator.wait_ready()?;
    throughout(AFTER_ONE_LEASE, |after| {
        assert_eq!(held.moved()?, 0, "{after:?} after the restart");
        Ok(())
    })?;
    let count = held.moved()?;
    println!("{count} of {LEASES} leases moved");
    assert_eq!(count, 0);

    // Open connections survive certificates of a wrong authority. A new process cannot connect.
    installation.apply(&certificates(&first.certificate(), &second.sign(&["redislease"])?))?;
    a_rollout_waits(&installation, &held, "operator-2")?;
    operator.restart()?;
    installation.wait_for_quorum("no server can be reached", SECRET_READ, |quorum| {
        quorum.count("Down") == 3
            && reports(quorum, "QuorumUnavailable", "add the authority that signed it to `ca.crt`")
    })?;

    // A certificate that is not one.
    installation.apply(&certificates("not a certificate", &second.sign(&["redislease"])?))?;
    let says = "secret redislease-system/redis-tls, whose key `ca.crt` holds no certificate in PEM";
    installation.wait_for_quorum("the unusable secret is reported", SECRET_READ, |quorum| {
        reports(quorum, "InvalidReference", says)
    })?;
    installation.apply(&certificates(&second.certificate(), &second.sign(&["redislease"])?))?;
    all_nodes_vote(&installation, SECRET_READ)
}
