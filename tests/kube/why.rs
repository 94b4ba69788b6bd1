//! `redislease why`: on a held lease, on a suspended one, with the rights to view only, and as a plugin of kubectl.

use std::error::Error;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use redislease_lab::{SYSTEM, Tools, poll};
use serde_json::{Value, json};

use crate::holder::held;
use crate::support::{AFTER_ONE_LEASE, FIRST_ELECTION, SOON, redislease, shared};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Limit for an answer of the API server.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

fn why(kubeconfig: &Path, args: &[&str]) -> String {
    let args = [&["why", "billing", "--namespace=explained"], args].concat();
    // On a busy machine, the API server can be slower than the timeout of one call.
    let answered = poll(ANSWERED_WITHIN, || {
        let output = redislease(kubeconfig, &args);
        let error = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(output.stdout) } else { Err(format!("{args:?}: {error}")) }
    });
    String::from_utf8(answered.expect("redislease why succeeds")).expect("text")
}

#[test]
fn redislease_why() -> Outcome {
    let installation = &shared().installation;
    let control_plane = installation.control_plane();
    let (lease, state) = held(installation, "explained")?;
    let holder = state.holder().unwrap_or_default();
    let admin = control_plane.kubeconfig();
    installation.wait_for_quorum("all nodes vote", FIRST_ELECTION, |quorum| quorum.count("Up") == 3)?;

    let text = why(admin, &[]);
    assert!(text.starts_with("RedisLease explained/billing\n\nHolder\n"), "{text}");
    assert!(text.contains(&format!("  {holder} ")) && text.contains("has held the lease since "), "{text}");
    assert!(text.contains(&format!("with fencing token {}.", state.token().unwrap_or_default())), "{text}");
    assert!(text.contains(&format!("    {holder}   holds the lease\n")), "{text}");
    assert!(text.contains("can be elected, and is the first in the order of the election\n"), "{text}");
    assert!(text.contains(&format!("RedisQuorum {SYSTEM}/default: 3 of 3 nodes vote (2 required).")), "{text}");
    assert!(text.contains(&format!("No change is due. If {holder} is deleted")), "{text}");

    view_rights_are_sufficient(&text)?;
    missing_rights_are_named(holder)?;
    kubectl_finds_the_plugin(&text);

    let absent = redislease(admin, &["why", "absent", "-n", "explained"]);
    let error = String::from_utf8_lossy(&absent.stderr);
    assert!(!absent.status.success(), "{error}");
    assert!(error.starts_with("error: there is no RedisLease absent in namespace explained"), "{error}");

    lease.patch(&json!({"spec": {"suspend": true}}))?;
    lease.wait("no holder", AFTER_ONE_LEASE, |now| now.holder().is_none())?;
    let now: Value = serde_json::from_str(&why(admin, &["-o", "json"])).expect("JSON");
    let said = now["holder"].to_string();
    assert!(said.contains("No pod holds the lease.") && said.contains("(Suspended)"), "{now}");
    assert!(now["lastTerm"].to_string().contains("with reason Suspended: spec.suspend was set to true"), "{now}");
    assert_eq!(now["next"], json!(["The operator elects a pod when spec.suspend is false."]));
    Ok(())
}

/// Creates a service account with these rules in the namespace of the lease and in the operator's.
fn reader(name: &str, role: &[&str], namespaces: &[&str]) -> Outcome<PathBuf> {
    let control_plane = shared().installation.control_plane();
    control_plane.kubectl(&["create", "serviceaccount", name, "--namespace=explained"])?;
    for namespace in namespaces {
        let scope = format!("--namespace={namespace}");
        let account = format!("--serviceaccount=explained:{name}");
        control_plane.kubectl(&[&["create", "rolebinding", name, &scope, &account], role].concat())?;
        let user = format!("--as=system:serviceaccount:explained:{name}");
        let kind = if *namespace == SYSTEM { "rq" } else { "rl" };
        poll(SOON, || Ok(control_plane.kubectl(&["auth", "can-i", "get", kind, &scope, &user])?))?;
    }
    Ok(control_plane.service_account_kubeconfig("explained", name)?)
}

/// The role `view` of Kubernetes, to which the chart adds the rights to read leases and quorums.
fn view_rights_are_sufficient(as_admin: &str) -> Outcome {
    let rules = [
        "create",
        "clusterrole",
        "explained-view",
        "--verb=get,list",
        "--resource=pods,deployments.apps,redisleases.redislease.io,redisquorums.redislease.io",
    ];
    shared().installation.control_plane().kubectl(&rules)?;
    let viewer = reader("viewer", &["--clusterrole=explained-view"], &["explained", SYSTEM])?;
    assert_eq!(without_ages(&why(&viewer, &[])), without_ages(as_admin));
    Ok(())
}

fn without_ages(text: &str) -> String {
    text.lines().map(|line| line.split(['(', ')']).step_by(2).collect::<String>()).collect()
}

fn missing_rights_are_named(holder: &str) -> Outcome {
    let control_plane = shared().installation.control_plane();
    control_plane.kubectl(&[
        "create",
        "role",
        "leases",
        "--namespace=explained",
        "--verb=get",
        "--resource=redisleases.redislease.io",
    ])?;
    let poor = reader("poor", &["--role=leases"], &["explained"])?;
    let text = why(&poor, &[]);
    assert!(text.contains(&format!("  {holder} ")), "{text}");
    assert!(
        text.contains("as the status of the lease says;") && text.contains("cannot get resource \"deployments\""),
        "{text}"
    );
    assert!(text.contains(&format!("RedisQuorum {SYSTEM}/default cannot be read: the API server refused: ")), "{text}");
    assert!(text.contains("(MajorityReachable)"), "{text}");
    Ok(())
}

fn kubectl_finds_the_plugin(as_admin: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    symlink(env!("CARGO_BIN_EXE_redislease"), folder.path().join("kubectl-redislease")).expect("a link");
    let kubectl = Tools::locate().expect("the tools are built").kubectl;
    let kubectl = |args: &[&str]| {
        let mut command = Command::new(&kubectl);
        command.args(args).env_clear().env("PATH", folder.path()).env("HOME", folder.path());
        command.env("KUBECONFIG", shared().installation.control_plane().kubeconfig()).output().expect("kubectl runs")
    };
    let output = kubectl(&["redislease", "why", "billing", "--namespace", "explained"]);
    assert_eq!(without_ages(&String::from_utf8_lossy(&output.stdout)), without_ages(as_admin), "{output:?}");
    let usage = kubectl(&["redislease", "--help"]);
    let usage = String::from_utf8_lossy(&usage.stdout);
    assert!(usage.contains("Usage: kubectl redislease <COMMAND>"), "{usage}");
}
