//! `redislease doctor` on real servers and a real control plane, with each fault made on purpose.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use redislease_lab::{Authority, Installation, RedisOptions, RedisServer, RedisTls, Result, SYSTEM};
use serde_json::{Value, json};

use crate::support::{SOON, options, secret};
use crate::wrong_clock::WrongClock;

fn doctor(kubeconfig: &Path, args: &[&str]) -> Output {
    let run =
        Command::new(env!("CARGO_BIN_EXE_redislease")).arg("doctor").args(args).env("KUBECONFIG", kubeconfig).output();
    run.expect("the binary runs")
}

/// Exit code and findings.
fn findings(kubeconfig: &Path, args: &[&str]) -> (Option<i32>, Vec<Value>) {
    let output = doctor(kubeconfig, &[args, &["--output=json"]].concat());
    let findings = serde_json::from_slice(&output.stdout);
    (output.status.code(), findings.unwrap_or_else(|error| panic!("{error}: {output:?}")))
}

/// Whether there is this finding.
fn has(findings: &[Value], verdict: &str, check: &str, says: &str) -> bool {
    findings.iter().any(|finding| {
        finding["verdict"] == verdict
            && finding["check"] == check
            && finding["message"].as_str().is_some_and(|message| message.contains(says))
    })
}

fn quorum(installation: &Installation, name: &str, addresses: &[String], more: &Value) -> Result<()> {
    let node = |(index, address): (usize, &String)| json!({"name": format!("n{index}"), "address": address});
    let nodes: Vec<Value> = addresses.iter().enumerate().map(node).collect();
    let mut spec = json!({"nodes": nodes, "allowSingleNode": addresses.len() == 1});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    installation.apply(&json!({
        "apiVersion": "redislease.io/v1alpha1",
        "kind": "RedisQuorum",
        "metadata": {"name": name, "namespace": SYSTEM},
        "spec": spec,
    }))
}

fn with_args(args: &[&str]) -> Result<RedisServer> {
    let args = args.iter().map(|&arg| arg.to_owned()).collect();
    RedisServer::start_with(&RedisOptions { args, ..RedisOptions::default() })
}

/// The faults of servers, each on a quorum with one node: its name, more fields of its spec, and the finding.
fn faulty_servers(installation: &Installation) -> Result<Vec<RedisServer>> {
    let mut servers = Vec::new();
    let mut add = |name: &str, server: RedisServer, more: &Value, tls: bool| -> Result<()> {
        let address = if tls { server.tls_address().expect("TLS") } else { server.address() };
        servers.push(server);
        quorum(installation, name, &[address.to_string()], more)
    };
    add("evicts", with_args(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"])?, &json!({}), false)?;
    add("cluster", with_args(&["--cluster-enabled", "yes"])?, &json!({}), false)?;
    let master = RedisServer::start()?;
    let port = master.address().port().to_string();
    let replica = with_args(&["--replicaof", "127.0.0.1", &port])?;
    installation.wait_for("the replica is connected", SOON * 2, || {
        let info = master.command(&["INFO", "replication"])?;
        let info = info.text().unwrap_or_default();
        if info.contains("connected_slaves:1") { Ok(()) } else { Err(info) }
    })?;
    add("replica", replica, &json!({}), false)?;
    add("with-replica", master, &json!({}), false)?;

    let full = RedisServer::start()?;
    full.command(&["CONFIG", "SET", "maxmemory", "1300kb"])?;
    let filler = "x".repeat(1024);
    for number in 0..400 {
        // It refuses more when it is full.
        if full.command(&["SET", &format!("filler-{number}"), &filler]).is_err() {
            break;
        }
    }
    add("full", full, &json!({}), false)?;

    // Nobody can write there.
    let unsaved = with_args(&["--dir", "/proc"])?;
    unsaved.command(&["BGSAVE"])?;
    installation.wait_for("the save has failed", SOON * 2, || {
        let info = unsaved.command(&["INFO", "persistence"])?;
        let info = info.text().unwrap_or_default();
        if info.contains("rdb_last_bgsave_status:err") { Ok(()) } else { Err(info) }
    })?;
    add("unsaved", unsaved, &json!({}), false)?;

    installation.apply(&secret("acl", &json!({"username": "limited", "password": "secret"})))?;
    let auth = json!({"auth": {"secretRef": {"name": "acl"}}});
    let limited = RedisServer::start()?;
    let rules = "ACL SETUSER limited reset on >secret ~redislease:* resetchannels +@all -incrby -del -script|load";
    limited.command(&rules.split(' ').collect::<Vec<_>>())?;
    add("limited", limited, &auth, false)?;
    add("password", RedisServer::start()?, &auth, false)?;

    let (ours, other) = (Authority::new("ours")?, Authority::new("other")?);
    installation.apply(&secret("tls", &json!({"ca.crt": ours.certificate()})))?;
    let tls = json!({"tls": {"secretRef": {"name": "tls"}}});
    let names = ["localhost", "127.0.0.1"];
    for (name, identity) in [
        ("encrypted", ours.sign(&names)?),
        ("wrong-ca", other.sign(&names)?),
        ("expired", ours.sign_expired(&names)?),
        ("wrong-name", ours.sign(&["redis.example.com"])?),
    ] {
        let options = RedisOptions { tls: Some(RedisTls { identity, client_ca: None }), ..RedisOptions::default() };
        add(name, RedisServer::start_with(&options)?, &tls, true)?;
    }
    add("no-secret", RedisServer::start()?, &json!({"auth": {"secretRef": {"name": "missing"}}}), false)?;
    Ok(servers)
}

/// Certificates that expire soon or have expired: each on a quorum with one server.
fn certificates_that_expire(installation: &Installation) -> Result<()> {
    const DAY: Duration = Duration::from_hours(24);
    let now = SystemTime::now();
    // A lifetime of 90 days, of which so many are left.
    let days_left = |days: u32| now + DAY * days - DAY * 90..now + DAY * days + DAY / 2;
    let expired = || now - DAY * 90..now - DAY / 2;
    let names = ["localhost", "127.0.0.1"];
    let ours = Authority::new("ours")?;
    let in_time = || ours.sign_valid(&names, days_left(80));
    let (short, old) = (Authority::new_valid("short", days_left(5))?, Authority::new_valid("old", expired())?);
    let both = [ours.certificate(), old.certificate()].concat();
    let (authority, client) = ("The authority in `ca.crt`", "The client's certificate in `tls.crt`");
    for (name, ca, server, of_client, verdict, says) in [
        (
            "server-soon",
            ours.certificate(),
            ours.sign_valid(&names, days_left(5))?,
            in_time()?,
            "Warning",
            "The server's certificate (CN=localhost) expires at",
        ),
        (
            "client-soon",
            ours.certificate(),
            in_time()?,
            ours.sign_valid(&["me"], days_left(5))?,
            "Warning",
            &format!("{client} (CN=me) expires at"),
        ),
        (
            "client-expired",
            ours.certificate(),
            in_time()?,
            ours.sign_valid(&["me"], expired())?,
            "Problem",
            &format!("{client} (CN=me) expired at"),
        ),
        (
            "ca-soon",
            short.certificate(),
            short.sign(&names)?,
            short.sign(&names)?,
            "Warning",
            &format!("{authority} (CN=short) expires at"),
        ),
        (
            "ca-expired",
            old.certificate(),
            old.sign(&names)?,
            old.sign(&names)?,
            "Problem",
            &format!("{authority} (CN=old) expired at"),
        ),
        ("ca-replaced", both, in_time()?, in_time()?, "Warning", &format!("{authority} (CN=old) expired at")),
        (
            "in-time",
            ours.certificate(),
            in_time()?,
            in_time()?,
            "Ok",
            "The server's certificate (CN=localhost) is valid until",
        ),
    ] {
        installation
            .apply(&secret(name, &json!({"ca.crt": ca, "tls.crt": of_client.certificate, "tls.key": of_client.key})))?;
        let tls =
            RedisTls { identity: server, client_ca: Some(ours.certificate()).filter(|_| name.starts_with("client")) };
        let server = RedisServer::start_with(&RedisOptions { tls: Some(tls), ..RedisOptions::default() })?;
        let address = server.tls_address().expect("TLS").to_string();
        quorum(installation, name, &[address], &json!({"tls": {"secretRef": {"name": name}}}))?;
        let (code, found) = findings(installation.control_plane().kubeconfig(), &[name]);
        assert!(has(&found, verdict, "certificate", says), "{name}: {found:#?}");
        let others = found.iter().filter(|one| one["check"] == "certificate" && one["verdict"] != "Ok").count();
        assert_eq!(others, usize::from(verdict != "Ok"), "{name}: {found:#?}");
        assert_eq!(code, Some(i32::from(verdict == "Problem")), "{name}: {found:#?}");
    }
    Ok(())
}

#[test]
fn each_fault_is_found_and_has_an_instruction() -> Result<()> {
    let installation = Installation::start(&options())?;
    let cluster = installation.control_plane();
    let admin = cluster.kubeconfig();

    let account = ["--service-account=redislease-operator"];
    let (code, healthy) = findings(admin, &account);
    assert_eq!(code, Some(0), "{healthy:#?}");
    assert!(has(&healthy, "Ok", "rbac", "has all"), "{healthy:#?}");
    assert!(has(&healthy, "Ok", "crd", "knows every field"), "{healthy:#?}");
    assert!(has(&healthy, "Ok", "commands", "Every command that leases need is allowed"), "{healthy:#?}");
    assert!(has(&healthy, "Warning", "tls", "not encrypted"), "{healthy:#?}");
    // As in the pod that `helm test` starts: the operator's own rights are enough.
    let (code, own) = findings(installation.operator_kubeconfig(), &[]);
    assert_eq!(code, Some(0), "{own:#?}");
    assert!(has(&own, "Ok", "rbac", "has all"), "{own:#?}");

    let _servers = faulty_servers(&installation)?;
    let two = installation.redis()[0].address();
    quorum(&installation, "shared", &[two.to_string(), format!("localhost:{}", two.port())], &json!({}))?;
    let gone = redislease_lab::free_address()?.to_string();
    quorum(&installation, "gone", &[gone], &json!({}))?;
    let clock = |name: &str, seconds: i64| {
        let clock = WrongClock::before(two, seconds).expect("a proxy");
        quorum(&installation, name, &[clock.address().to_string()], &json!({})).map(|()| clock)
    };
    let _clocks = [clock("ahead", 2)?, clock("behind", -2)?, clock("far-ahead", 12)?, clock("far-behind", -12)?];
    for (name, verdict, check, says) in [
        ("evicts", "Problem", "eviction", "maxmemory-policy is `allkeys-lru`"),
        ("cluster", "Problem", "cluster-mode", "cluster-enabled is `yes`"),
        ("replica", "Problem", "role", "role is `slave`"),
        ("with-replica", "Warning", "replicas", "1 replicas are connected"),
        ("full", "Problem", "commands", "free memory or increase `maxmemory`"),
        ("unsaved", "Problem", "persistence", "cannot save its data"),
        ("limited", "Problem", "commands", "The server refuses INCRBY, DEL, SCRIPT LOAD"),
        ("password", "Problem", "login", "set the user name and password in the RedisQuorum's secret"),
        ("wrong-ca", "Problem", "tls", "add the authority that signed it to `ca.crt`"),
        ("expired", "Problem", "tls", "has expired: renew it"),
        ("wrong-name", "Problem", "tls", "is not for the name `127.0.0.1` (it is for redis.example.com)"),
        ("no-secret", "Problem", "secret", "secret redislease-system/missing, which does not exist: create it"),
        ("shared", "Problem", "shared-server", "lead to one server"),
        ("gone", "Problem", "connection", "Connection refused"),
        ("ahead", "Warning", "clock", "ms ahead of that of"),
        ("behind", "Warning", "clock", "ms behind that of"),
        ("far-ahead", "Problem", "clock", "A new quorum needs clocks within 10 s"),
        ("far-behind", "Problem", "clock", "A new quorum needs clocks within 10 s"),
    ] {
        let (code, found) = findings(admin, &[name]);
        assert!(has(&found, verdict, check, says), "{name}: {found:#?}");
        assert_eq!(code, Some(i32::from(verdict == "Problem")), "{name}: {found:#?}");
    }
    let (_, full) = findings(admin, &["full"]);
    assert!(has(&full, "Warning", "memory", "bytes of maxmemory are used"), "{full:#?}");
    let (code, encrypted) = findings(admin, &["encrypted"]);
    assert_eq!(code, Some(0), "{encrypted:#?}");
    assert!(has(&encrypted, "Ok", "connection", "with TLS: Redis"), "{encrypted:#?}");
    assert!(!has(&encrypted, "Warning", "tls", ""), "{encrypted:#?}");
    let (code, all) = findings(admin, &[]);
    assert_eq!(code, Some(1));
    assert!(all.len() > 40, "one run looks at all quorums: {}", all.len());

    certificates_that_expire(&installation)?;

    // The zones of a quorum.
    for (zones, verdict) in [(["x", "x", "y"], "Warning"), (["x", "y", "z"], "Ok")] {
        let node = |(index, zone): (usize, &&str)| json!({"name": format!("redis-{index}"), "zone": zone, "address": installation.redis()[index].address().to_string()});
        let nodes: Vec<Value> = zones.iter().enumerate().map(node).collect();
        let patch = json!({"spec": {"nodes": nodes}}).to_string();
        cluster.kubectl(&["patch", "redisquorum", "default", "-n", SYSTEM, "--type=merge", "--patch", &patch])?;
        let (code, found) = findings(admin, &["default"]);
        assert!(has(&found, verdict, "zones", ""), "{zones:?}: {found:#?}");
        assert_eq!(code, Some(0));
    }

    // Rights.
    let (code, refused) = findings(admin, &["default", "--service-account=default"]);
    assert_eq!(code, Some(1));
    assert!(has(&refused, "Problem", "rbac", "may not patch pods, which is needed to label pods"), "{refused:#?}");
    // The operator needs these rights only with the flags.
    for (flag, says) in [
        ("--allow-scheduling-gate", "may not delete pods, which is needed for activation.schedulingGate"),
        ("--allow-scale", "may not patch statefulsets, which is needed for activation.scale"),
        ("--allow-suspend", "may not patch cronjobs, which is needed for activation.suspend"),
    ] {
        let (code, refused) = findings(admin, &["default", "--service-account=redislease-operator", flag]);
        assert_eq!(code, Some(1), "{flag}");
        assert!(has(&refused, "Problem", "rbac", says), "{flag}: {refused:#?}");
    }

    // What cannot be checked, and wrong arguments.
    let (code, missing) = findings(admin, &["nowhere"]);
    assert_eq!(code, Some(2), "{missing:#?}");
    let nobody = cluster.service_account_kubeconfig(SYSTEM, "default")?;
    let (code, forbidden) = findings(&nobody, &[]);
    assert_eq!(code, Some(1), "{forbidden:#?}");
    assert!(has(&forbidden, "Unchecked", "quorums", "cannot be read"), "{forbidden:#?}");
    let unreachable = std::env::temp_dir().join("there-is-no-kubeconfig");
    let (code, nothing) = findings(&unreachable, &[]);
    assert_eq!(code, Some(2), "{nothing:#?}");
    let wrong = doctor(admin, &["--outpt=json"]);
    assert_eq!(wrong.status.code(), Some(64), "{wrong:?}");
    let table = String::from_utf8_lossy(&doctor(admin, &["default"]).stdout).into_owned();
    assert!(table.starts_with("RESULT     CHECK") && table.ends_with("0 problems, 0 not checked\n"), "{table}");

    // Nothing is applied after this: the definition has another owner now.
    let old = r#"[{"op": "remove", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/tls"}]"#;
    cluster.kubectl(&["patch", "crd", "redisquorums.redislease.io", "--type=json", "--patch", old])?;
    installation.wait_for("the older definition is found", SOON * 4, || {
        let (_, found) = findings(admin, &["default"]);
        if has(&found, "Problem", "crd", "lacks spec.tls") { Ok(()) } else { Err(format!("{found:#?}")) }
    })?;
    Ok(())
}
