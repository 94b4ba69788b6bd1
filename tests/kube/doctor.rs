//! `redislease doctor` on real servers and a real control plane, with each fault made on purpose.

use std::path::Path;
use std::process::Output;
use std::time::{Duration, SystemTime};

use redislease_lab::{
    Authority, ControlPlane, Identity, Installation, Proxy, RedisOptions, RedisServer, RedisTls, Result, SYSTEM,
    redis_quorum,
};
use serde_json::{Value, json};

use crate::holder::held;
use crate::support::{Cluster, FIRST_ELECTION, SOON, options, redislease, secret};

/// The names of the servers in their certificates.
const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

fn doctor(kubeconfig: &Path, args: &[&str]) -> Output {
    redislease(kubeconfig, &[&["doctor"], args].concat())
}

/// Exit code and findings.
pub fn findings(kubeconfig: &Path, args: &[&str]) -> (Option<i32>, Vec<Value>) {
    let output = doctor(kubeconfig, &[args, &["--output=json"]].concat());
    let findings = serde_json::from_slice(&output.stdout);
    (output.status.code(), findings.unwrap_or_else(|error| panic!("{error}: {output:?}")))
}

/// The same, once more if a slow API server has left something unchecked. No operator runs: that a quorum has no status does not count,
/// which is a problem after a minute.
fn checked(kubeconfig: &Path, args: &[&str]) -> (Option<i32>, Vec<Value>) {
    let (mut code, mut found) = findings(kubeconfig, args);
    if code == Some(2) {
        (code, found) = findings(kubeconfig, args);
    }
    let mut problems = found.iter().filter(|finding| finding["verdict"] == "Problem");
    let is_without_status = code == Some(1) && problems.all(|finding| finding["check"] == "status");
    (if is_without_status { Some(0) } else { code }, found)
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
    installation.apply(&redis_quorum(name, &spec))
}

fn with_args(args: &[&str]) -> Result<RedisServer> {
    let args = args.iter().map(|&arg| arg.to_owned()).collect();
    RedisServer::start_with(&RedisOptions { args, ..RedisOptions::default() })
}

/// Waits until the server's INFO has this text.
fn wait_for_info(installation: &Installation, server: &RedisServer, section: &str, text: &str) -> Result<()> {
    installation.wait_for(text, SOON * 2, || {
        let info = server.command(&["INFO", section])?.text().unwrap_or_default();
        if info.contains(text) { Ok(()) } else { Err(info) }
    })
}

/// Servers with a fault, each of them alone in a quorum.
struct FaultyServers<'a> {
    installation: &'a Installation,
    servers: Vec<RedisServer>,
}

impl FaultyServers<'_> {
    /// The name of the quorum, its server, and more fields of its spec.
    fn add(&mut self, name: &str, server: RedisServer, more: &Value) -> Result<()> {
        let address = server.tls_address().unwrap_or_else(|| server.address());
        self.servers.push(server);
        quorum(self.installation, name, &[address.to_string()], more)
    }

    fn add_wrong_modes(&mut self) -> Result<()> {
        self.add("evicts", with_args(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"])?, &json!({}))?;
        self.add("cluster", with_args(&["--cluster-enabled", "yes"])?, &json!({}))?;
        let master = RedisServer::start()?;
        let port = master.address().port().to_string();
        let replica = with_args(&["--replicaof", "127.0.0.1", &port])?;
        wait_for_info(self.installation, &master, "replication", "connected_slaves:1")?;
        self.add("replica", replica, &json!({}))?;
        self.add("with-replica", master, &json!({}))
    }

    fn add_that_cannot_write(&mut self) -> Result<()> {
        let full = RedisServer::start()?;
        full.command(&["CONFIG", "SET", "maxmemory", "1300kb"])?;
        let filler = "x".repeat(1024);
        for number in 0..400 {
            // It refuses more when it is full.
            if full.command(&["SET", &format!("filler-{number}"), &filler]).is_err() {
                break;
            }
        }
        self.add("full", full, &json!({}))?;

        // Nobody can write there.
        for (name, refuses_writes) in [("unsaved", false), ("misconf", true)] {
            let server = with_args(&["--dir", "/proc"])?;
            server.command(&["BGSAVE"])?;
            wait_for_info(self.installation, &server, "persistence", "rdb_last_bgsave_status:err")?;
            if refuses_writes {
                server.command(&["CONFIG", "SET", "save", "3600 1"])?;
            }
            self.add(name, server, &json!({}))?;
        }
        Ok(())
    }

    fn add_wrong_logins(&mut self) -> Result<()> {
        self.installation.apply(&secret("acl", &json!({"username": "limited", "password": "secret"})))?;
        let auth = json!({"auth": {"secretRef": {"name": "acl"}}});
        let limited = RedisServer::start()?;
        let rules = "ACL SETUSER limited reset on >secret ~redislease:* resetchannels +@all -pttl -del -script|load";
        limited.command(&rules.split(' ').collect::<Vec<_>>())?;
        self.add("limited", limited, &auth)?;
        self.add("password", RedisServer::start()?, &auth)?;
        self.add("no-secret", RedisServer::start()?, &json!({"auth": {"secretRef": {"name": "missing"}}}))
    }

    /// Only the server `encrypted` has a right certificate.
    fn add_wrong_certificates(&mut self) -> Result<()> {
        let (ours, other) = (Authority::new("ours")?, Authority::new("other")?);
        self.installation.apply(&secret("tls", &json!({"ca.crt": ours.certificate()})))?;
        let tls = json!({"tls": {"secretRef": {"name": "tls"}}});
        for (name, identity) in [("encrypted", ours.sign(&NAMES)?), ("wrong-ca", other.sign(&NAMES)?)] {
            let options = RedisOptions { tls: Some(RedisTls { identity, client_ca: None }), ..RedisOptions::default() };
            self.add(name, RedisServer::start_with(&options)?, &tls)?;
        }
        Ok(())
    }
}

/// The faults of quorums: the name of the quorum and the finding, with its verdict, check and a part of its message.
const FAULTS: [(&str, &str, &str, &str); 15] = [
    ("evicts", "Problem", "eviction", "maxmemory-policy is `allkeys-lru`"),
    ("cluster", "Problem", "cluster-mode", "cluster-enabled is `yes`"),
    ("replica", "Problem", "role", "role is `slave`"),
    ("with-replica", "Warning", "replicas", "1 replicas are connected"),
    ("full", "Problem", "commands", "free memory or increase `maxmemory`"),
    ("unsaved", "Warning", "persistence", "cannot save its data and may refuse writes"),
    ("misconf", "Problem", "persistence", "cannot save its data and refuses writes"),
    ("limited", "Problem", "commands", "The server refuses PTTL, DEL, SCRIPT LOAD"),
    ("password", "Problem", "login", "set the user name and password in the RedisQuorum's secret"),
    ("wrong-ca", "Problem", "tls", "add the authority that signed it to `ca.crt`"),
    ("no-secret", "Problem", "secret", "secret redislease-system/missing, which does not exist: create it"),
    ("shared", "Problem", "shared-server", "lead to one server"),
    ("gone", "Problem", "connection", "Connection refused"),
    ("ahead", "Warning", "clock", "ms ahead of that of"),
    ("far-ahead", "Problem", "clock", "A new quorum needs clocks within 10 s"),
];

fn faults_of_quorums(installation: &Installation) -> Result<()> {
    let mut faulty = FaultyServers { installation, servers: Vec::new() };
    faulty.add_wrong_modes()?;
    faulty.add_that_cannot_write()?;
    faulty.add_wrong_logins()?;
    faulty.add_wrong_certificates()?;
    let two = installation.redis()[0].address();
    quorum(installation, "shared", &[two.to_string(), format!("localhost:{}", two.port())], &json!({}))?;
    let gone = redislease_lab::free_address()?.to_string();
    quorum(installation, "gone", &[gone], &json!({}))?;
    let clock = |name: &str, seconds: i64| {
        let clock = Proxy::with_wrong_clock(two, seconds)?;
        // The marker of the quorum `default` on the same server must not keep the node from voting.
        quorum(installation, name, &[clock.address().to_string()], &json!({"keyPrefix": name})).map(|()| clock)
    };
    let _clocks = [clock("ahead", 2)?, clock("far-ahead", 12)?];

    let admin = installation.control_plane().kubeconfig();
    for (name, verdict, check, says) in FAULTS {
        let (code, found) = checked(admin, &[name]);
        assert!(has(&found, verdict, check, says), "{name}: {found:#?}");
        assert_eq!(code, Some(i32::from(verdict == "Problem")), "{name}: {found:#?}");
    }
    let (_, full) = checked(admin, &["full"]);
    assert!(has(&full, "Warning", "memory", "bytes of maxmemory are used"), "{full:#?}");
    let (code, encrypted) = checked(admin, &["encrypted"]);
    assert_eq!(code, Some(0), "{encrypted:#?}");
    assert!(has(&encrypted, "Ok", "connection", "with TLS: Redis"), "{encrypted:#?}");
    assert!(!has(&encrypted, "Warning", "tls", ""), "{encrypted:#?}");
    let (code, all) = checked(admin, &[]);
    assert_eq!(code, Some(1));
    assert!(all.len() > 40, "one run looks at all quorums: {}", all.len());
    Ok(())
}

/// The name of a quorum, the authorities in its secret, and the certificates of its server and of the client.
type Certificates = (&'static str, String, Identity, Identity);

/// Certificates that expire soon, have expired or are valid, with the verdict and a part of the message.
fn certificates() -> Result<[(Certificates, &'static str, &'static str); 3]> {
    const DAY: Duration = Duration::from_hours(24);
    let now = SystemTime::now();
    // A lifetime of 90 days, of which so many are left.
    let days_left = |days: u32| now + DAY * days - DAY * 90..now + DAY * days + DAY / 2;
    let ours = Authority::new("ours")?;
    let ca = || ours.certificate();
    let in_time = || ours.sign_valid(&NAMES, days_left(80));
    let old = Authority::new_valid("old", now - DAY * 90..now - DAY / 2)?;
    let both = [ours.certificate(), old.certificate()].concat();
    Ok([
        (
            ("client-soon", ca(), in_time()?, ours.sign_valid(&["me"], days_left(5))?),
            "Warning",
            "The client's certificate in `tls.crt` (CN=me) expires at",
        ),
        (("ca-replaced", both, in_time()?, in_time()?), "Warning", "The authority in `ca.crt` (CN=old) expired at"),
        (("in-time", ca(), in_time()?, in_time()?), "Ok", "The server's certificate (CN=localhost) is valid until"),
    ])
}

fn certificates_that_expire(installation: &Installation) -> Result<()> {
    for ((name, ca, server, client), verdict, says) in certificates()? {
        installation
            .apply(&secret(name, &json!({"ca.crt": ca, "tls.crt": client.certificate, "tls.key": client.key})))?;
        // Only these servers ask the client for its certificate.
        let client_ca = name.starts_with("client").then_some(ca);
        let tls = Some(RedisTls { identity: server, client_ca });
        let server = RedisServer::start_with(&RedisOptions { tls, ..RedisOptions::default() })?;
        let address = server.tls_address().expect("TLS").to_string();
        quorum(installation, name, &[address], &json!({"tls": {"secretRef": {"name": name}}}))?;
        let (code, found) = checked(installation.control_plane().kubeconfig(), &[name]);
        assert!(has(&found, verdict, "certificate", says), "{name}: {found:#?}");
        let others = found.iter().filter(|one| one["check"] == "certificate" && one["verdict"] != "Ok").count();
        assert_eq!(others, usize::from(verdict != "Ok"), "{name}: {found:#?}");
        assert_eq!(code, Some(0), "{name}: {found:#?}");
    }
    Ok(())
}

fn a_healthy_quorum(installation: &Installation) {
    let account = ["--service-account=redislease-operator"];
    let (code, healthy) = findings(installation.control_plane().kubeconfig(), &account);
    assert_eq!(code, Some(0), "{healthy:#?}");
    assert!(has(&healthy, "Ok", "rbac", "has all"), "{healthy:#?}");
    assert!(has(&healthy, "Ok", "crd", "knows every field"), "{healthy:#?}");
    assert!(has(&healthy, "Ok", "commands", "Every command that leases need is allowed"), "{healthy:#?}");
    assert!(has(&healthy, "Warning", "tls", "not encrypted"), "{healthy:#?}");
    // As in the pod that `helm test` starts: the operator's own rights are enough.
    let (code, own) = findings(installation.operator_kubeconfig(), &[]);
    assert_eq!(code, Some(0), "{own:#?}");
    assert!(has(&own, "Ok", "rbac", "has all"), "{own:#?}");
}

fn zones_of_a_quorum(installation: &Installation) -> Result<()> {
    let cluster = installation.control_plane();
    for (zones, verdict) in [(["x", "x", "y"], "Warning"), (["x", "y", "z"], "Ok")] {
        let node = |(index, zone): (usize, &&str)| json!({"name": format!("redis-{index}"), "zone": zone, "address": installation.redis()[index].address().to_string()});
        let nodes: Vec<Value> = zones.iter().enumerate().map(node).collect();
        let patch = json!({"spec": {"nodes": nodes}}).to_string();
        cluster.kubectl(&["patch", "redisquorum", "default", "-n", SYSTEM, "--type=merge", "--patch", &patch])?;
        let (code, found) = checked(cluster.kubeconfig(), &["default"]);
        assert!(has(&found, verdict, "zones", ""), "{zones:?}: {found:#?}");
        assert_eq!(code, Some(0));
    }
    Ok(())
}

fn missing_rights(admin: &Path) {
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
}

fn what_cannot_be_checked_and_wrong_arguments(cluster: &ControlPlane) -> Result<()> {
    let admin = cluster.kubeconfig();
    let (code, missing) = findings(admin, &["nowhere"]);
    assert_eq!(code, Some(1), "{missing:#?}");
    assert!(has(&missing, "Problem", "quorums", "There is no RedisQuorum nowhere"), "{missing:#?}");
    let nobody = cluster.service_account_kubeconfig(SYSTEM, "default")?;
    let (code, forbidden) = findings(&nobody, &[]);
    assert_eq!(code, Some(2), "{forbidden:#?}");
    assert!(has(&forbidden, "Unchecked", "quorums", "cannot be read"), "{forbidden:#?}");
    assert!(has(&forbidden, "Unchecked", "rbac", "Your identity lacks"), "{forbidden:#?}");
    let unreachable = std::env::temp_dir().join("there-is-no-kubeconfig");
    let (code, nothing) = findings(&unreachable, &[]);
    assert_eq!(code, Some(2), "{nothing:#?}");
    let wrong = doctor(admin, &["--outpt=json"]);
    assert_eq!(wrong.status.code(), Some(64), "{wrong:?}");
    let table = String::from_utf8_lossy(&doctor(admin, &["default"]).stdout).into_owned();
    assert!(table.starts_with("RESULT     CHECK") && table.ends_with(" problems, 0 not checked\n"), "{table}");
    Ok(())
}

#[test]
fn each_fault_is_found_and_has_an_instruction() -> Result<()> {
    let installation = Installation::start(&options())?;
    let cluster = installation.control_plane();
    a_healthy_quorum(&installation);
    faults_of_quorums(&installation)?;
    certificates_that_expire(&installation)?;
    zones_of_a_quorum(&installation)?;
    missing_rights(cluster.kubeconfig());
    what_cannot_be_checked_and_wrong_arguments(cluster)?;

    // Nothing is applied after this: the definition has another owner now.
    let old = r#"[{"op": "remove", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/tls"}]"#;
    cluster.kubectl(&["patch", "crd", "redisquorums.redislease.io", "--type=json", "--patch", old])?;
    installation.wait_for("the older definition is found", SOON * 4, || {
        let (_, found) = findings(cluster.kubeconfig(), &["default"]);
        if has(&found, "Problem", "crd", "lacks spec.tls") { Ok(()) } else { Err(format!("{found:#?}")) }
    })?;
    Ok(())
}

/// Nothing in the API server tells whether the operator still works.
#[test]
fn an_operator_that_is_dead_and_a_quorum_that_is_missing_are_found() -> Result<()> {
    let Cluster { operator, installation } = Cluster::of(&options())?;
    let admin = installation.control_plane().kubeconfig();
    held(&installation, "dead")?;
    let until = |what: &str, code: i32, fits: &dyn Fn(&[Value]) -> bool| {
        installation.wait_for(what, FIRST_ELECTION, || {
            let (found_code, found) = findings(admin, &[]);
            if found_code == Some(code) && fits(&found) { Ok(()) } else { Err(format!("{found:#?}")) }
        })
    };
    until("the operator leads", 0, &|_| true)?;
    operator.pause()?;
    until("no operator leads", 1, &|found| has(found, "Problem", "operator", "No replica of the operator leads"))?;
    operator.resume()?;
    until("it leads again", 0, &|_| true)?;
    installation.control_plane().kubectl(&["delete", "redisquorum", "default", "-n", SYSTEM])?;
    until("the quorum is missing", 1, &|found| has(found, "Warning", "leases", "does not exist"))
}
