//! The admission policies: what the operator's service account can write.

mod gates;
mod leases;
mod pods;
mod workloads;

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::Duration;

use redislease_lab::{Helm, Installation, InstallationOptions, Result};
use serde_json::{Value, json};

use crate::objects::render;

/// The API server enforces a new policy within seconds.
const SOON: Duration = Duration::from_mins(1);

/// The arguments of Helm for all optional rights.
pub(super) const ALL_RIGHTS: &[&str] =
    &["--set=rbac.allowSchedulingGate=true", "--set=rbac.allowScale=true", "--set=rbac.allowSuspend=true"];

/// A control plane with all optional rights of the operator, and no operator.
pub(super) fn with_all_rights() -> &'static Installation {
    static SHARED: LazyLock<Installation> = LazyLock::new(|| {
        let options = InstallationOptions {
            allow_scheduling_gate: true,
            allow_scale: true,
            allow_suspend: true,
            ..InstallationOptions::new(env!("CARGO_BIN_EXE_redislease"))
        };
        Installation::start(&options).expect("the cluster starts")
    });
    &SHARED
}

/// Gives the operator more rights than the chart grants: the policies hold for them, too.
pub(super) fn grant(installation: &Installation, namespace: &str, group: &str, resources: &[&str]) -> Result<()> {
    installation.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "more", "namespace": namespace},
        "rules": [{"apiGroups": [group], "resources": resources, "verbs": ["get", "patch"]}],
    }))?;
    let namespace = format!("--namespace={namespace}");
    let account = "--serviceaccount=redislease-system:redislease-operator";
    let bind = ["create", "rolebinding", "more", "--role=more", account, &namespace];
    installation.control_plane().kubectl(&bind).map(drop)
}

/// A request about an object of one kind.
#[derive(Debug)]
pub(super) enum Request {
    Create(Value),
    /// A merge patch of the object with this name.
    Patch(&'static str, Value),
    /// A merge patch of a subresource of the object with this name.
    PatchPart(&'static str, &'static str, Value),
    Delete(&'static str),
}

use Request::{Create, Delete, Patch, PatchPart};

/// Requests about one kind in one namespace.
pub(super) struct Requests<'a> {
    pub(super) installation: &'a Installation,
    pub(super) namespace: &'static str,
    pub(super) kind: &'static str,
    /// The arguments of Helm with which the policies were installed.
    pub(super) values: &'static [&'static str],
}

impl Requests<'_> {
    pub(super) fn send(&self, request: &Request, more: &[&str]) -> Result<String> {
        let namespace = format!("--namespace={}", self.namespace);
        let cluster = self.installation.control_plane();
        let change = |change: &Value| format!("--patch={change}");
        match request {
            Create(object) => {
                let args = [&["create", "--filename=-", "--output=name", &namespace], more].concat();
                cluster.kubectl_with_input(&args, &object.to_string())
            }
            Patch(name, to) => {
                cluster.kubectl(&[&["patch", self.kind, name, "--type=merge", &change(to), &namespace], more].concat())
            }
            PatchPart(part, name, to) => {
                let part = format!("--subresource={part}");
                let args = ["patch", self.kind, name, &part, "--type=merge", &change(to), &namespace];
                cluster.kubectl(&[&args, more].concat())
            }
            Delete(name) => cluster.kubectl(&[&["delete", self.kind, name, "--wait=false", &namespace], more].concat()),
        }
    }

    pub(super) fn operator(&self) -> String {
        format!("--kubeconfig={}", self.installation.operator_kubeconfig().display())
    }

    /// The API server executes the request of the operator.
    pub(super) fn allowed(&self, request: &Request) -> Result<()> {
        self.send(request, &[&self.operator()]).map(drop)
    }

    /// Waits until the policy refuses this request with this message.
    pub(super) fn wait_for_policy(&self, message: &str, request: &Request) -> Result<()> {
        let operator = self.operator();
        self.installation.wait_for(&format!("the policy for {}", self.kind), SOON, || {
            match self.send(request, &[&operator, "--dry-run=server"]) {
                Err(error) if error.to_string().contains(message) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
    }

    /// The request is refused to the operator with this message, and allowed to the administrator.
    pub(super) fn refuses(&self, message: &str, request: &Request) -> Result<()> {
        let refused = self.send(request, &[&self.operator(), "--dry-run=server"]);
        let refused = refused.expect_err(&format!("{request:?} is refused")).to_string();
        assert!(refused.contains(message) && refused.contains("Forbidden"), "{request:?}: {refused}");
        self.send(request, &["--dry-run=server"]).map(drop)
    }

    /// The same for each request. Each validation of the policy refuses at least one of them.
    pub(super) fn refused(&self, policy: &str, cases: &[(&str, Request)]) -> Result<()> {
        for (message, request) in cases {
            self.refuses(message, request)?;
        }
        let policies = ["--show-only=templates/admission-policy.yaml"];
        let rendered = render(&Helm::new()?, &[&policies, self.values].concat())?;
        let named = |name: &str| name.strip_prefix("redislease-operator-") == Some(policy);
        let found = rendered.iter().find(|of| of.kind() == "ValidatingAdmissionPolicy" && named(of.name()));
        let found = found.unwrap_or_else(|| panic!("there is no policy {policy}"));
        let validations = found.0["spec"]["validations"].as_array().into_iter().flatten();
        let messages: BTreeSet<&str> = validations.filter_map(|of| of["message"].as_str()).collect();
        assert_eq!(messages, cases.iter().map(|(message, _)| *message).collect(), "each validation has a case");
        Ok(())
    }
}

/// Creates the namespace, and pods with these scheduling gates and annotations.
pub(super) fn create_pods(pods: &Requests<'_>, wanted: &[(&str, &[&str], &Value)]) -> Result<()> {
    let namespace = pods.namespace;
    pods.installation.namespace(namespace)?;
    let account = ["wait", "serviceaccount/default", "--for=create", "--timeout=60s", "--namespace", namespace];
    pods.installation.control_plane().kubectl(&account)?;
    for (name, names, annotations) in wanted {
        let gates: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": "web"}, "annotations": annotations},
            "spec": {
                "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "none"}],
                "initContainers": [{"name": "first", "image": "none"}],
                "schedulingGates": gates,
            },
        });
        pods.send(&Create(pod), &[])?;
    }
    Ok(())
}

/// A copy with other fields, each with its JSON pointer. `null` removes the field.
pub(super) fn but(object: &Value, changes: &[(&str, Value)]) -> Value {
    let mut copy = object.clone();
    for (pointer, value) in changes {
        let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
        let parent = copy.pointer_mut(parent).and_then(Value::as_object_mut).expect("the parent exists");
        let field = field.replace("~1", "/");
        if value.is_null() {
            parent.remove(&field);
        } else {
            parent.insert(field, value.clone());
        }
    }
    copy
}

/// The API server knows every field that the policies read. There are two policies by default, and two more with all rights.
pub(super) fn no_warnings(installation: &Installation) -> Result<()> {
    let statuses = ["get", "validatingadmissionpolicies", "--output=jsonpath={.items[*].status}"];
    let checked = installation.wait_for("the policies were checked", SOON, || {
        let statuses = installation.control_plane().kubectl(&statuses)?;
        let count = statuses.matches("observedGeneration").count();
        if count == 4 { Ok(statuses) } else { Err(statuses) }
    })?;
    assert!(!checked.contains("expressionWarnings"), "{checked}");
    Ok(())
}
