//! `redislease status` against a real API server, with only the documented permissions.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use redislease_lab::{Components, ControlPlane, poll};
use serde_json::{Value, json};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Limit for one step on a busy machine.
const STEP_WITHIN: Duration = Duration::from_mins(1);

#[test]
fn redislease_status() -> Outcome {
    let control_plane = ControlPlane::start(Components::ApiServer)?;
    let admin = control_plane.kubeconfig();
    no_api_server(&control_plane);
    let missing = refused(admin, &[]);
    assert!(missing.contains("the API server does not know the kind RedisLease; install it with"), "{missing}");

    control_plane.define()?;
    control_plane.kubectl(&["create", "namespace", "jobs"])?;
    control_plane.kubectl(&["create", "serviceaccount", "reader", "--namespace=jobs"])?;
    let reader = control_plane.service_account_kubeconfig("jobs", "reader")?;
    let forbidden = refused(&reader, &[]);
    assert!(
        forbidden.starts_with("error: cannot list RedisLeases in namespace jobs: the API server refused: ")
            && forbidden.contains("\"system:serviceaccount:jobs:reader\" cannot list resource \"redisleases\""),
        "{forbidden}"
    );
    control_plane.kubectl(&[
        "create",
        "role",
        "reader",
        "--namespace=jobs",
        "--verb=list,watch",
        "--resource=redisleases.redislease.io",
    ])?;
    let binding =
        ["create", "rolebinding", "reader", "--namespace=jobs", "--role=reader", "--serviceaccount=jobs:reader"];
    control_plane.kubectl(&binding)?;
    wait_for_the_role(&control_plane)?;

    no_leases(&reader);
    two_leases(&control_plane, &reader)?;
    changes_are_printed(&control_plane, &reader)
}

/// Waits until the API server's own watch has received the new RoleBinding.
fn wait_for_the_role(control_plane: &ControlPlane) -> Outcome {
    let question = ["auth", "can-i", "list", "rl", "--namespace=jobs", "--as=system:serviceaccount:jobs:reader"];
    Ok(poll(STEP_WITHIN, || control_plane.kubectl(&question).map(drop).map_err(|error| error.to_string()))?)
}

fn no_api_server(control_plane: &ControlPlane) {
    let nowhere = control_plane.kubeconfig().with_file_name("nowhere");
    let message = refused(&nowhere, &[]);
    assert!(message.starts_with("error: no access to a Kubernetes API server: "), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}

fn no_leases(reader: &Path) {
    assert_eq!(refused(reader, &["billing"]), "error: there is no RedisLease billing in namespace jobs\n");
    let (out, err) = succeeded(reader, &[]);
    assert_eq!((out.as_str(), err.as_str()), ("", "No RedisLeases in namespace jobs.\n"));
    assert_eq!(succeeded(reader, &["-o", "json"]).0, "[]\n");
}

fn two_leases(control_plane: &ControlPlane, reader: &Path) -> Outcome {
    for name in ["billing", "invoices"] {
        control_plane.apply(&lease(name).to_string())?;
    }
    hold(control_plane, "billing", "billing-0", 1_795_238_400_000_042)?;
    let (table, _) = succeeded(reader, &[]);
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    let headings = ["NAME", "ACTIVE", "HOLDER", "CLUSTER", "SINCE", "CANDIDATES", "LAST", "END", "READY", "MESSAGE"];
    assert_eq!(lines[0], headings, "{table}");
    let [name, active, holder, cluster, _, candidates, last_end, ready, ref message @ ..] = lines[1][..] else {
        panic!("{table}")
    };
    assert_eq!(
        [name, active, holder, cluster, candidates, last_end, ready, &message.join(" ")],
        ["billing", "True", "billing-0", "eu-west-1", "2/3", "HolderStopped", "True", "It is held."]
    );
    assert_eq!(lines[2], ["invoices"]);
    assert_eq!(lines.len(), 3);

    let (one, _) = succeeded(reader, &["billing", "-o", "json"]);
    let one: Value = serde_json::from_str(&one)?;
    assert_eq!(one.as_array().map(Vec::len), Some(1), "{one}");
    assert_eq!(one[0]["holder"]["pod"], "billing-0");

    // A missing permission is reported instead of an empty list.
    let message = refused(reader, &["-A"]);
    assert!(
        message.starts_with("error: cannot list RedisLeases in all namespaces: the API server refused: "),
        "{message}"
    );
    let (all, _) = succeeded(control_plane.kubeconfig(), &["-A"]);
    assert!(all.starts_with("NAMESPACE   NAME ") && all.contains("\njobs        billing "), "{all}");
    Ok(())
}

fn changes_are_printed(control_plane: &ControlPlane, reader: &Path) -> Outcome {
    let watch = Watch::start(reader)?;
    let first = [watch.next()?, watch.next()?];
    assert_eq!([&first[0]["name"], &first[1]["name"]], ["billing", "invoices"]);
    // A change outside the status prints nothing: the next line is the one with the next holder.
    control_plane.kubectl(&["label", "rl/billing", "--namespace=jobs", "team=money"])?;
    hold(control_plane, "billing", "billing-1", 1_795_238_400_000_043)?;
    let second = watch.next()?;
    assert_eq!(
        (&second["holder"]["pod"], &second["fencingToken"]),
        (&json!("billing-1"), &json!(1_795_238_400_000_043_i64))
    );
    control_plane.kubectl(&["delete", "rl/invoices", "--namespace=jobs"])?;
    let third = watch.next()?;
    assert_eq!((&third["name"], &third["deleted"]), (&json!("invoices"), &json!(true)));
    Ok(())
}

fn lease(name: &str) -> Value {
    json!({
        "apiVersion": "redislease.io/v1alpha1",
        "kind": "RedisLease",
        "metadata": {"name": name, "namespace": "jobs"},
        "spec": {"quorumRef": {"name": "default"}, "candidates": {"selector": {"matchLabels": {"app": name}}}},
    })
}

fn hold(control_plane: &ControlPlane, name: &str, pod: &str, token: i64) -> Outcome {
    let time = "2026-11-21T08:00:00Z";
    let condition = |type_: &str| json!({"type": type_, "status": "True", "reason": "HeldHere", "message": "It is held.", "lastTransitionTime": time});
    let status = json!({"status": {
        "holder": {"cluster": "eu-west-1", "namespace": "jobs", "pod": pod, "podUID": pod},
        "attempt": "0123456789abcdef0123456789abcdef",
        "fencingToken": token,
        "acquireTime": time,
        "transitions": 1,
        "candidates": {"total": 3, "eligible": 2},
        "history": [{
            "fencingToken": 7, "cluster": "eu-west-1", "pod": "billing-2", "reason": "HolderStopped",
            "acquireTime": time, "endTime": time,
        }],
        "conditions": [condition("Ready"), condition("Active")],
    }});
    let patch = format!("--patch={status}");
    control_plane.kubectl(&[
        "patch",
        "rl",
        name,
        "--namespace=jobs",
        "--subresource=status",
        "--type=merge",
        &patch,
    ])?;
    Ok(())
}

fn command(kubeconfig: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redislease"));
    command.arg("status").args(args).env_clear().env("KUBECONFIG", kubeconfig).env("HOME", "/nowhere");
    command
}

fn succeeded(kubeconfig: &Path, args: &[&str]) -> (String, String) {
    let output = command(kubeconfig, args).output().expect("the binary runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{args:?}: {err}");
    (out.into_owned(), err.into_owned())
}

fn refused(kubeconfig: &Path, args: &[&str]) -> String {
    let output = command(kubeconfig, args).output().expect("the binary runs");
    assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}: {output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A running `redislease status --watch` and the lines that it prints. It stops when it is dropped.
struct Watch {
    child: Child,
    lines: Receiver<String>,
}

impl Watch {
    fn start(kubeconfig: &Path) -> Outcome<Self> {
        let mut child = command(kubeconfig, &["--watch", "--output=json"]).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().ok_or("no standard output")?;
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Ok(Self { child, lines })
    }

    fn next(&self) -> Outcome<Value> {
        Ok(serde_json::from_str(&self.lines.recv_timeout(STEP_WITHIN)?)?)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
