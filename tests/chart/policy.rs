//! The admission policies: what the operator's service account can write.

use std::collections::BTreeSet;
use std::time::Duration;

use redislease_lab::{Helm, Installation, InstallationOptions, Result};
use serde_json::{Value, json};

use crate::cluster::shared;
use crate::objects::render;

/// The API server enforces a new policy within seconds.
const SOON: Duration = Duration::from_mins(1);

const LABELS: &str =
    "the RedisLease operator can change only the labels lease.redislease.io/* of a pod, and no other label";
const ANNOTATIONS: &str =
    "the RedisLease operator can change only the annotations token.redislease.io/* of a pod, and no other annotation";
const METADATA: &str = "the RedisLease operator cannot change the finalizers or owners of a pod";
const SPEC: &str = "the RedisLease operator cannot change the spec of a pod";
const STATUS: &str = "the RedisLease operator cannot change the status of a pod";

#[test]
fn the_operator_can_change_only_its_labels_and_annotations_of_pods() -> Result<()> {
    let installation = shared();
    let cluster = installation.control_plane();
    installation.deployment("policy", "web", 1)?;
    let pod = cluster.kubectl(&["get", "pods", "--namespace=policy", "--output=name"])?;
    let pod = pod.trim();
    let operator = format!("--kubeconfig={}", installation.operator_kubeconfig().display());
    let patch = |subresource: Option<&str>, change: &Value, user: Option<&str>, more: &[&str]| -> Result<String> {
        let subresource = subresource.map(|name| format!("--subresource={name}"));
        let change = format!("--patch={change}");
        let args = ["patch", pod, "--namespace=policy", &change].into_iter();
        let args = args.chain(subresource.as_deref()).chain(user).chain(more.iter().copied());
        cluster.kubectl(&args.collect::<Vec<_>>())
    };
    let image = json!({"spec": {"containers": [{"name": "main", "image": "other"}]}});
    installation.wait_for("the policy", SOON, || {
        match patch(None, &image, Some(&operator), &["--dry-run=server"]) {
            Err(error) if error.to_string().contains(SPEC) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })?;

    // The requests that the operator makes: a merge patch with the resourceVersion, which sets or removes its own keys.
    for value in [json!("active"), json!("standby"), Value::Null] {
        let version = ["get", pod, "--namespace=policy", "--output=jsonpath={.metadata.resourceVersion}"];
        let version = cluster.kubectl(&version)?;
        let token = if value.is_null() { Value::Null } else { json!("1795238400000042") };
        let change = json!({"metadata": {
            "resourceVersion": version,
            "labels": {"lease.redislease.io/web": value},
            "annotations": {"token.redislease.io/web": token},
        }});
        patch(None, &change, Some(&operator), &["--type=merge"])?;
    }

    grant(installation, "policy", "", &["pods/status", "pods/ephemeralcontainers", "pods/resize"])?;

    let labels = |labels: Value| json!({"metadata": {"labels": labels}});
    let annotations = |annotations: Value| json!({"metadata": {"annotations": annotations}});
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "node-0", "uid": "1"});
    let container = json!({"name": "debug", "image": "other"});
    for (subresource, change, message) in [
        (None, labels(json!({"app": "other"})), LABELS),
        (None, labels(json!({"app": null})), LABELS),
        (None, labels(json!({"another": "label"})), LABELS),
        (None, labels(json!({"token.redislease.io/web": "7"})), LABELS),
        (None, labels(json!({"lease.redislease.io/web": "active", "another": "label"})), LABELS),
        (None, annotations(json!({"redislease.io/priority": "100"})), ANNOTATIONS),
        (None, annotations(json!({"lease.redislease.io/web": "active"})), ANNOTATIONS),
        (None, json!({"metadata": {"finalizers": ["example.com/stay"]}}), METADATA),
        (None, json!({"metadata": {"ownerReferences": [owner]}}), METADATA),
        (None, image.clone(), SPEC),
        (None, json!({"spec": {"activeDeadlineSeconds": 1}}), SPEC),
        (Some("ephemeralcontainers"), json!({"spec": {"ephemeralContainers": [container]}}), SPEC),
        (Some("status"), json!({"status": {"phase": "Failed"}}), STATUS),
    ] {
        let what = subresource.unwrap_or_default();
        let refused = patch(subresource, &change, Some(&operator), &[]);
        let refused = refused.expect_err(&format!("{what} {change} is refused")).to_string();
        assert!(refused.contains(message) && refused.contains("Forbidden"), "{what} {change}: {refused}");
        // Without the policy, it would be possible: the administrator can do it.
        patch(subresource, &change, None, &["--dry-run=server"])?;
    }
    Ok(())
}

/// Gives the operator more rights than the chart grants: the policies hold for them, too.
fn grant(installation: &Installation, namespace: &str, group: &str, resources: &[&str]) -> Result<()> {
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
enum Request {
    Create(Value),
    /// A merge patch of the object with this name.
    Patch(&'static str, Value),
    /// A merge patch of a subresource of the object with this name.
    PatchPart(&'static str, &'static str, Value),
    Delete(&'static str),
}

use Request::{Create, Delete, Patch, PatchPart};

/// Requests about one kind in one namespace.
struct Requests<'a> {
    installation: &'a Installation,
    namespace: &'static str,
    kind: &'static str,
    /// The arguments of Helm with which the policies were installed.
    values: &'static [&'static str],
}

impl Requests<'_> {
    fn send(&self, request: &Request, more: &[&str]) -> Result<String> {
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

    fn operator(&self) -> String {
        format!("--kubeconfig={}", self.installation.operator_kubeconfig().display())
    }

    /// The API server executes the request of the operator.
    fn allowed(&self, request: &Request) -> Result<()> {
        self.send(request, &[&self.operator()]).map(drop)
    }

    /// Waits until the policy refuses this request with this message.
    fn wait_for_policy(&self, message: &str, request: &Request) -> Result<()> {
        let operator = self.operator();
        self.installation.wait_for(&format!("the policy for {}", self.kind), SOON, || {
            match self.send(request, &[&operator, "--dry-run=server"]) {
                Err(error) if error.to_string().contains(message) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
    }

    /// Each request is refused to the operator with its message, and allowed to the administrator. Each validation of the
    /// policy refuses at least one of them.
    fn refused(&self, policy: &str, cases: &[(&str, Request)]) -> Result<()> {
        let operator = self.operator();
        for (message, request) in cases {
            let refused = self.send(request, &[&operator, "--dry-run=server"]);
            let refused = refused.expect_err(&format!("{request:?} is refused")).to_string();
            assert!(refused.contains(message) && refused.contains("Forbidden"), "{request:?}: {refused}");
            self.send(request, &["--dry-run=server"])?;
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

/// Creates a namespace and a lease, and returns the owner reference of the lease's objects.
fn owner(installation: &Installation, namespace: &str) -> Result<Value> {
    installation.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))?;
    installation.apply(&json!({
        "apiVersion": "redislease.io/v1alpha1",
        "kind": "RedisLease",
        "metadata": {"name": "billing", "namespace": namespace},
        "spec": {"candidates": {"selector": {"matchLabels": {"app": "billing"}}}, "activeService": {"name": "active"}},
    }))?;
    let namespace = format!("--namespace={namespace}");
    let uid = ["get", "redislease", "billing", &namespace, "--output=jsonpath={.metadata.uid}"];
    let uid = installation.control_plane().kubectl(&uid)?;
    Ok(json!({
        "apiVersion": "redislease.io/v1alpha1", "kind": "RedisLease", "name": "billing", "uid": uid, "controller": true,
    }))
}

/// A copy with other fields, each with its JSON pointer. `null` removes the field.
fn but(object: &Value, changes: &[(&str, Value)]) -> Value {
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

/// Owner references that do not say that the lease `billing` controls the object.
fn wrong_owners(owner: &Value) -> Vec<Value> {
    let workload = [("/apiVersion", json!("apps/v1")), ("/kind", json!("Deployment"))];
    vec![
        Value::Null,
        json!([but(owner, &[("/controller", Value::Null)])]),
        json!([but(owner, &[("/controller", json!(false))])]),
        json!([but(owner, &[("/name", json!("invoices"))])]),
        json!([but(owner, &[("/kind", json!("RedisQuorum"))])]),
        json!([but(owner, &workload[..1])]),
        json!([but(owner, &workload)]),
    ]
}

const MANAGER: &str = "the RedisLease operator can create, change and delete only the EndpointSlices that it manages";
const NAME: &str = "the RedisLease operator can write only EndpointSlices with the name SERVICE-redislease-ipv4 or SERVICE-redislease-ipv6, as their service-name and addressType say";
const SLICE_OWNER: &str = "the RedisLease operator can write only EndpointSlices whose controller is the RedisLease in their label redislease.io/lease";
const SLICE_LABELS: &str = "the RedisLease operator cannot change the labels, owners or finalizers of an EndpointSlice";
const SLICE_ANNOTATIONS: &str =
    "the RedisLease operator can change only the annotations token.redislease.io/* of an EndpointSlice";
const NEW_SLICE: &str = "the RedisLease operator can create EndpointSlices only without an endpoint";
const ENDPOINT: &str = "the RedisLease operator can write only one endpoint with one address, which must refer to a pod of the same namespace by name and UID";

#[test]
fn the_operator_can_write_only_the_endpoint_slices_of_leases() -> Result<()> {
    let installation = shared();
    let slices = Requests { installation, namespace: "slices", kind: "endpointslice", values: &[] };
    let owner = owner(installation, slices.namespace)?;
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "active-redislease-ipv4",
            "labels": {
                "kubernetes.io/service-name": "active",
                "endpointslice.kubernetes.io/managed-by": "redislease.io",
                "app.kubernetes.io/managed-by": "redislease",
                "redislease.io/lease": "billing",
            },
            "annotations": {"token.redislease.io/billing": "7"},
            "ownerReferences": [owner],
        },
        "addressType": "IPv4",
        "endpoints": [],
    });
    let endpoint = json!({
        "addresses": ["10.0.0.7"],
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "targetRef": {"kind": "Pod", "namespace": slices.namespace, "name": "billing-0", "uid": "u"},
        "nodeName": "node-0",
    });
    let with = |endpoints: &[&Value]| json!({"endpoints": endpoints});
    let metadata = |metadata: Value| json!({"metadata": metadata});

    let foreign = "/metadata/labels/endpointslice.kubernetes.io~1managed-by";
    slices.wait_for_policy(MANAGER, &Create(but(&slice, &[(foreign, Value::Null)])))?;

    // What the operator does with a slice.
    slices.allowed(&Create(slice.clone()))?;
    let ports = json!([{"name": "http", "protocol": "TCP", "port": 8080}]);
    let token = |token: Value| json!({"annotations": {"token.redislease.io/billing": token}});
    let grant = json!({"metadata": token(json!("8")), "endpoints": [endpoint], "ports": ports});
    slices.allowed(&Patch("active-redislease-ipv4", grant))?;
    let withdraw = json!({"metadata": token(Value::Null), "endpoints": [], "ports": []});
    slices.allowed(&Patch("active-redislease-ipv4", withdraw))?;

    // Slices that the operator does not write.
    let service = "/metadata/labels/kubernetes.io~1service-name";
    let named = |name: &str| ("/metadata/name", json!(name));
    let of_others = [
        ("foreign-redislease-ipv4", foreign, json!("example.com")),
        ("other-name", foreign, json!("redislease.io")),
        ("orphan-redislease-ipv4", "/metadata/ownerReferences", Value::Null),
    ];
    for (name, field, value) in &of_others {
        let to = name.trim_end_matches("-redislease-ipv4");
        let object = but(&slice, &[named(name), (service, json!(to)), (field, value.clone())]);
        slices.send(&Create(object), &[])?;
    }
    let annotated = json!({"annotations": {"example.com/note": "stays"}});
    slices.send(&Patch("active-redislease-ipv4", metadata(annotated)), &[])?;

    let new = |changes: &[(&str, Value)]| Create(but(&slice, changes));
    let change = |change: Value| Patch("active-redislease-ipv4", change);
    let pod = |field: &str, value: Value| {
        let changed = but(&endpoint, &[(&format!("/{field}"), value)]);
        change(with(&[&changed]))
    };
    let (next, next_service) = (|| named("next-redislease-ipv4"), || (service, json!("next")));
    let mut cases = vec![
        (MANAGER, new(&[next(), next_service(), (foreign, json!("endpointslice-controller.k8s.io"))])),
        (MANAGER, new(&[next(), next_service(), (foreign, Value::Null)])),
        (MANAGER, Patch("foreign-redislease-ipv4", with(&[]))),
        (MANAGER, Patch("foreign-redislease-ipv4", with(&[&endpoint]))),
        (MANAGER, Delete("foreign-redislease-ipv4")),
        (NAME, new(&[named("another-name")])),
        (NAME, new(&[next(), (service, json!("kube-dns"))])),
        (NAME, new(&[next(), (service, Value::Null)])),
        (NAME, new(&[named("active-redislease-ipv6")])),
        (NAME, new(&[named("active-redislease-fqdn"), ("/addressType", json!("FQDN"))])),
        (NAME, Patch("other-name", with(&[&endpoint]))),
        (SLICE_OWNER, Patch("orphan-redislease-ipv4", with(&[&endpoint]))),
        (SLICE_OWNER, new(&[next(), next_service(), ("/metadata/labels/redislease.io~1lease", Value::Null)])),
        (SLICE_LABELS, change(metadata(json!({"labels": {"kubernetes.io/service-name": "kube-dns"}})))),
        (SLICE_LABELS, change(metadata(json!({"labels": {"another": "label"}})))),
        (SLICE_LABELS, change(metadata(json!({"labels": {"endpointslice.kubernetes.io/managed-by": null}})))),
        (SLICE_LABELS, change(metadata(json!({"ownerReferences": null})))),
        (SLICE_LABELS, change(metadata(json!({"finalizers": ["example.com/stay"]})))),
        (SLICE_ANNOTATIONS, change(metadata(json!({"annotations": {"another": "annotation"}})))),
        (SLICE_ANNOTATIONS, change(metadata(json!({"annotations": {"example.com/note": "changed"}})))),
        (SLICE_ANNOTATIONS, change(metadata(json!({"annotations": {"example.com/note": null}})))),
        (NEW_SLICE, new(&[next(), next_service(), ("/endpoints", json!([endpoint]))])),
        (ENDPOINT, change(with(&[&endpoint, &but(&endpoint, &[("/addresses", json!(["10.0.0.8"]))])]))),
        (ENDPOINT, pod("addresses", json!(["10.0.0.7", "10.0.0.8"]))),
        (ENDPOINT, pod("targetRef", Value::Null)),
        (ENDPOINT, pod("targetRef/kind", json!("Node"))),
        (ENDPOINT, pod("targetRef/namespace", json!("kube-system"))),
        (ENDPOINT, pod("targetRef/namespace", Value::Null)),
        (ENDPOINT, pod("targetRef/name", Value::Null)),
        (ENDPOINT, pod("targetRef/uid", Value::Null)),
    ];
    for owners in wrong_owners(&owner) {
        cases.push((SLICE_OWNER, new(&[next(), next_service(), ("/metadata/ownerReferences", owners)])));
    }
    slices.refused("endpointslices", &cases)?;

    // Those with the operator as the manager can be emptied and deleted.
    for name in ["other-name", "orphan-redislease-ipv4", "active-redislease-ipv4"] {
        slices.send(&Patch(name, with(&[&endpoint])), &[])?;
        slices.allowed(&Patch(name, with(&[])))?;
        slices.allowed(&Delete(name))?;
    }
    Ok(())
}

const CHANGE: &str = "the RedisLease operator cannot change a Service";
const MANAGED_BY: &str = "the RedisLease operator can create and delete only Services with the label app.kubernetes.io/managed-by=redislease";
const SERVICE_OWNER: &str = "the RedisLease operator can create and delete only Services whose controller is the RedisLease in their label redislease.io/lease";
const SELECTOR: &str = "the RedisLease operator can create and delete only Services without a selector";
const TYPE: &str = "the RedisLease operator can create only Services of type ClusterIP without external IP addresses";

#[test]
fn the_operator_can_create_and_delete_only_the_services_of_leases() -> Result<()> {
    let installation = shared();
    let services = Requests { installation, namespace: "services", kind: "service", values: &[] };
    let owner = owner(installation, services.namespace)?;
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "active",
            "labels": {"app.kubernetes.io/managed-by": "redislease", "redislease.io/lease": "billing"},
            "ownerReferences": [owner],
        },
        "spec": {"ipFamilyPolicy": "PreferDualStack", "ports": [{"name": "http", "protocol": "TCP", "port": 8080}]},
    });
    let (label, owners) = ("/metadata/labels/app.kubernetes.io~1managed-by", "/metadata/ownerReferences");
    services.wait_for_policy(MANAGED_BY, &Create(but(&service, &[(label, Value::Null)])))?;
    services.allowed(&Create(service.clone()))?;

    let named = |name: &str| ("/metadata/name", json!(name));
    let selector = || json!({"app": "billing"});
    for (name, field, value) in [
        ("without-label", label, Value::Null),
        ("without-owner", owners, Value::Null),
        ("with-selector", "/spec/selector", selector()),
    ] {
        services.send(&Create(but(&service, &[named(name), (field, value)])), &[])?;
    }
    grant(installation, services.namespace, "", &["services", "services/status"])?;

    let new = |field: &str, value: Value| Create(but(&service, &[named("next"), (field, value)]));
    let condition = json!({
        "type": "Test", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let alias = json!({"type": "ExternalName", "externalName": "example.com"});
    let mut cases = vec![
        (CHANGE, Patch("active", json!({"metadata": {"annotations": {"a": "b"}}}))),
        (CHANGE, Patch("active", json!({"spec": {"selector": selector()}}))),
        (CHANGE, PatchPart("status", "active", json!({"status": {"conditions": [condition]}}))),
        (MANAGED_BY, new(label, Value::Null)),
        (MANAGED_BY, new(label, json!("Helm"))),
        (MANAGED_BY, Delete("without-label")),
        (SERVICE_OWNER, Delete("without-owner")),
        (SERVICE_OWNER, new("/metadata/labels/redislease.io~1lease", Value::Null)),
        (SELECTOR, new("/spec/selector", selector())),
        (SELECTOR, Delete("with-selector")),
        (TYPE, new("/spec/type", json!("LoadBalancer"))),
        (TYPE, new("/spec/type", json!("NodePort"))),
        (TYPE, new("/spec", alias)),
        (TYPE, new("/spec/externalIPs", json!(["192.0.2.1"]))),
    ];
    // The finalizer keeps the Services of owners that do not exist.
    let stay = json!(["example.com/stay"]);
    for (name, wrong) in ["a", "b", "c", "d", "e", "f", "g"].into_iter().zip(wrong_owners(&owner)) {
        let changes = [named(name), (owners, wrong.clone()), ("/metadata/finalizers", stay.clone())];
        services.send(&Create(but(&service, &changes)), &[])?;
        cases.extend([(SERVICE_OWNER, Delete(name)), (SERVICE_OWNER, new(owners, wrong))]);
    }
    services.refused("services", &cases)?;
    services.allowed(&Delete("active"))
}

const STARTED: &str = "the RedisLease operator can change only the annotations token.redislease.io/* of a pod, add started.redislease.io/NAME when it removes the scheduling gate lease.redislease.io/NAME, and change no other annotation";
const GATES: &str =
    "the RedisLease operator can remove only the scheduling gates lease.redislease.io/* of a pod, and add none";
const GATED_SPEC: &str = "the RedisLease operator cannot change the spec of a pod, except its scheduling gates";
const DELETIONS: &str = "the RedisLease operator can delete only pods with an annotation started.redislease.io/*";

/// The gate of the lease `web`, and one of somebody else.
const GATE: &str = "lease.redislease.io/web";
const FOREIGN: &str = "example.com/quota";

/// Creates a namespace and pods with these scheduling gates and annotations.
fn gated_pods(pods: &Requests<'_>, wanted: &[(&str, &[&str], &Value)]) -> Result<()> {
    let namespace = pods.namespace;
    pods.installation.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))?;
    let account = ["wait", "serviceaccount/default", "--for=create", "--timeout=60s", "--namespace", namespace];
    pods.installation.control_plane().kubectl(&account)?;
    for (name, names, annotations) in wanted {
        let gates: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations},
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

/// The patch that lets a pod start, with other fields as in [`but`].
fn start(changes: &[(&str, Value)]) -> Value {
    let patch = json!({
        "metadata": {
            "labels": {"lease.redislease.io/web": "active"},
            "annotations": {"token.redislease.io/web": "7", "started.redislease.io/web": "7"},
        },
        "spec": {"schedulingGates": null},
    });
    but(&patch, changes)
}

/// Changes that Kubernetes allows in the spec of a pod with a scheduling gate.
fn changed_specs() -> Vec<(&'static str, Value)> {
    let term = json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]});
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}});
    vec![
        ("/spec/containers", json!([{"name": "main", "image": "other"}])),
        ("/spec/initContainers", json!([{"name": "first", "image": "other"}])),
        ("/spec/activeDeadlineSeconds", json!(1)),
        ("/spec/tolerations", json!([{"key": "dedicated", "operator": "Exists"}])),
        ("/spec/nodeSelector", json!({"disk": "ssd"})),
        ("/spec/affinity", json!({"nodeAffinity": required})),
    ]
}

#[test]
fn the_operator_can_start_pods_and_delete_those_that_it_has_started() -> Result<()> {
    let options = InstallationOptions {
        allow_scheduling_gate: true,
        ..InstallationOptions::new(env!("CARGO_BIN_EXE_redislease"))
    };
    let installation = &Installation::start(&options)?;
    let values = &["--set=rbac.allowSchedulingGate=true"];
    let pods = Requests { installation, namespace: "gates", kind: "pod", values };
    let (none, started) = (json!({}), json!({"started.redislease.io/web": "6"}));
    gated_pods(
        &pods,
        &[
            ("gated", &[GATE], &none),
            ("gated-by-two", &[GATE, FOREIGN], &none),
            ("gated-by-others", &[FOREIGN], &none),
            ("gated-again", &[GATE], &started),
            ("plain", &[], &none),
            ("started", &[], &started),
        ],
    )?;
    let without_gates = json!({"spec": {"schedulingGates": null}});
    pods.wait_for_policy(GATES, &Patch("gated-by-others", without_gates.clone()))?;
    pods.wait_for_policy(DELETIONS, &Delete("plain"))?;
    grant(installation, pods.namespace, "", &["pods/status", "pods/ephemeralcontainers"])?;

    let annotate = |name: &str, value: Value| json!({"metadata": {"annotations": {name: value}}});
    let mark = |value: Value| annotate("started.redislease.io/web", value);
    let mut cases = vec![
        (LABELS, Patch("gated", start(&[("/metadata/labels/another", json!("label"))]))),
        (STARTED, Patch("gated", start(&[("/metadata/annotations/another", json!("annotation"))]))),
        (STARTED, Patch("gated", start(&[("/metadata/annotations/started.redislease.io~1shop", json!("7"))]))),
        (STARTED, Patch("gated", mark(json!("7")))),
        (STARTED, Patch("gated-by-two", start(&[("/spec/schedulingGates", json!([{"name": GATE}]))]))),
        (STARTED, Patch("gated-by-others", start(&[]))),
        (STARTED, Patch("plain", mark(json!("7")))),
        (STARTED, Patch("started", mark(json!("7")))),
        (STARTED, Patch("started", mark(Value::Null))),
        (STARTED, Patch("gated-again", but(&mark(Value::Null), &[("/spec", json!({"schedulingGates": null}))]))),
        (METADATA, Patch("gated", start(&[("/metadata/finalizers", json!(["example.com/stay"]))]))),
        (GATES, Patch("gated-by-others", without_gates.clone())),
        (GATES, Patch("gated-by-two", start(&[]))),
        (GATES, Patch("gated-by-two", json!({"spec": {"schedulingGates": [{"name": GATE}]}}))),
        (STATUS, PatchPart("status", "plain", json!({"status": {"phase": "Failed"}}))),
    ];
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "other"}]}});
    cases.push((GATED_SPEC, PatchPart("ephemeralcontainers", "plain", debug)));
    for change in changed_specs() {
        cases.push((GATED_SPEC, Patch("gated", start(std::slice::from_ref(&change)))));
        let alone = but(&json!({"spec": {}}), &[change]);
        cases.push((GATED_SPEC, Patch("gated", alone)));
    }
    pods.refused("pods", &cases)?;
    let never_started = ["gated", "gated-by-two", "gated-by-others", "plain"];
    pods.refused("pod-deletions", &never_started.map(|name| (DELETIONS, Delete(name))))?;

    // What the operator does with a pod: it writes the marks, and removes its gate.
    let read = |name: &str, field: &str| {
        let field = format!("--output=jsonpath={{{field}}}");
        installation.control_plane().kubectl(&["get", "pod", name, "--namespace", pods.namespace, &field])
    };
    let (uid, version) = (read("gated", ".metadata.uid")?, read("gated", ".metadata.resourceVersion")?);
    let identified = [("/metadata/uid", json!(uid)), ("/metadata/resourceVersion", json!(version))];
    pods.allowed(&Patch("gated", start(&identified)))?;
    assert_eq!(read("gated", ".spec.schedulingGates")?, "");
    pods.allowed(&Patch("gated-by-two", start(&[("/spec/schedulingGates", json!([{"name": FOREIGN}]))])))?;
    assert_eq!(read("gated-by-two", ".spec.schedulingGates[*].name")?, FOREIGN);
    pods.allowed(&Patch("gated-again", start(&[])))?;
    // The next tokens and roles.
    pods.allowed(&Patch("gated", annotate("token.redislease.io/web", json!("8"))))?;
    pods.allowed(&Patch("gated", json!({"metadata": {"labels": {"lease.redislease.io/web": "standby"}}})))?;
    for name in ["gated", "gated-by-two", "gated-again", "started"] {
        pods.allowed(&Delete(name))?;
    }

    no_warnings(installation)
}

/// The API server knows every field that the policies read. There are four policies by default, and one more.
fn no_warnings(installation: &Installation) -> Result<()> {
    let statuses = ["get", "validatingadmissionpolicies", "--output=jsonpath={.items[*].status}"];
    let checked = installation.wait_for("the policies were checked", SOON, || {
        let statuses = installation.control_plane().kubectl(&statuses)?;
        let count = statuses.matches("observedGeneration").count();
        if count == 5 { Ok(statuses) } else { Err(statuses) }
    })?;
    assert!(!checked.contains("expressionWarnings"), "{checked}");
    Ok(())
}

#[test]
fn the_operator_can_neither_start_nor_delete_pods_by_default() -> Result<()> {
    let installation = shared();
    let pods = Requests { installation, namespace: "ungated", kind: "pod", values: &[] };
    let (none, started) = (json!({}), json!({"started.redislease.io/web": "6"}));
    gated_pods(&pods, &[("gated", &[GATE], &none), ("started", &[], &started)])?;
    let without_gates = json!({"spec": {"schedulingGates": null}});
    pods.wait_for_policy(SPEC, &Patch("gated", without_gates))?;
    let mark = json!({"metadata": {"annotations": {"started.redislease.io/web": "7"}}});
    for (message, request) in [
        (ANNOTATIONS, Patch("gated", start(&[]))),
        (ANNOTATIONS, Patch("gated", mark.clone())),
        (ANNOTATIONS, Patch("started", mark)),
        (SPEC, Patch("gated", start(&[("/metadata/annotations", json!({}))]))),
        ("cannot delete resource \"pods\"", Delete("started")),
    ] {
        let refused = pods.send(&request, &[&pods.operator(), "--dry-run=server"]);
        let refused = refused.expect_err(&format!("{request:?} is refused")).to_string();
        assert!(refused.contains(message), "{request:?}: {refused}");
        pods.send(&request, &["--dry-run=server"])?;
    }
    Ok(())
}

const PARTS: &str =
    "the RedisLease operator cannot change the status of a workload, and cannot use its subresource scale";
const WORKLOAD_LABELS: &str =
    "the RedisLease operator can change only the labels lease.redislease.io/* of a workload, and no other label";
const WORKLOAD_ANNOTATIONS: &str = "the RedisLease operator can change only the annotations token.redislease.io/* of a workload, and no other annotation";
const WORKLOAD_METADATA: &str = "the RedisLease operator cannot change the finalizers or owners of a workload";
const WORKLOAD_SPEC: &str = "the RedisLease operator cannot change the spec of a workload, except replicas of a Deployment or StatefulSet and suspend of a CronJob";

/// A kind of workloads that the operator starts and stops.
struct Workload {
    kind: &'static str,
    group: &'static str,
    /// The right to change parts of it that the chart does not grant.
    parts: &'static [&'static str],
    /// One that runs nothing, with the name `web`.
    object: Value,
    /// The specs with which the operator starts and stops it.
    specs: [Value; 2],
    /// Other specs, which an administrator can write.
    others: Vec<Value>,
}

fn workloads() -> [Workload; 3] {
    let image = |image: &str| json!({"containers": [{"name": "main", "image": image}]});
    let labels = json!({"app": "web"});
    let pods = json!({"metadata": {"labels": labels}, "spec": image("none")});
    let selector = json!({"matchLabels": labels});
    let object = |version: &str, kind: &str, spec: &Value| {
        json!({
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": "web", "labels": labels, "annotations": {"redislease.io/priority": "1"}},
            "spec": spec,
        })
    };
    let started = [json!({"replicas": 3}), json!({"replicas": 0})];
    let common = [
        json!({"template": {"spec": image("other")}}),
        json!({"template": {"metadata": {"labels": {"another": "label"}}}}),
        json!({"replicas": 3, "template": {"spec": image("other")}}),
        json!({"revisionHistoryLimit": 1}),
        json!({"minReadySeconds": null}),
    ];
    let spec = json!({"replicas": 0, "selector": selector, "template": pods, "minReadySeconds": 5});
    let job = json!({"template": {"spec": but(&image("none"), &[("/restartPolicy", json!("Never"))])}});
    let cron =
        json!({"schedule": "0 0 1 1 *", "suspend": true, "startingDeadlineSeconds": 60, "jobTemplate": {"spec": job}});
    [
        Workload {
            kind: "deployment",
            group: "apps",
            parts: &["deployments/status", "deployments/scale"],
            object: object("apps/v1", "Deployment", &spec),
            specs: started.clone(),
            others: [
                &common[..],
                &[json!({"paused": true}), json!({"strategy": {"type": "Recreate", "rollingUpdate": null}})],
            ]
            .concat(),
        },
        Workload {
            kind: "statefulset",
            group: "apps",
            parts: &["statefulsets/status", "statefulsets/scale"],
            object: object("apps/v1", "StatefulSet", &spec),
            specs: started,
            others: [&common[..], &[json!({"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}})]]
                .concat(),
        },
        Workload {
            kind: "cronjob",
            group: "batch",
            parts: &["cronjobs/status"],
            object: object("batch/v1", "CronJob", &cron),
            specs: [json!({"suspend": false}), json!({"suspend": true})],
            others: vec![
                json!({"jobTemplate": {"spec": {"template": {"spec": image("other")}}}}),
                json!({"jobTemplate": {"metadata": {"labels": {"another": "label"}}}}),
                json!({"suspend": false, "schedule": "* * * * *"}),
                json!({"schedule": "* * * * *"}),
                json!({"timeZone": "Etc/UTC"}),
                json!({"concurrencyPolicy": "Replace"}),
                json!({"startingDeadlineSeconds": null}),
            ],
        },
    ]
}

/// The patch that starts or stops a workload, with other fields as in [`but`].
fn activate(role: &str, spec: &Value, changes: &[(&str, Value)]) -> Value {
    let metadata = json!({
        "labels": {"lease.redislease.io/web": role},
        "annotations": {"token.redislease.io/web": "1795238400000042"},
    });
    but(&json!({"metadata": metadata, "spec": spec}), changes)
}

/// What the policy refuses about one workload.
fn refused_changes(workload: &Workload) -> Vec<(&'static str, Request)> {
    let [start, _] = &workload.specs;
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "node-0", "uid": "1"});
    let mut cases: Vec<(&str, Request)> = [
        (WORKLOAD_LABELS, "/metadata/labels/app", json!("other")),
        (WORKLOAD_LABELS, "/metadata/labels/another", json!("label")),
        (WORKLOAD_LABELS, "/metadata/labels/token.redislease.io~1web", json!("7")),
        (WORKLOAD_ANNOTATIONS, "/metadata/annotations/another", json!("annotation")),
        (WORKLOAD_ANNOTATIONS, "/metadata/annotations/redislease.io~1priority", json!("100")),
        (WORKLOAD_ANNOTATIONS, "/metadata/annotations/lease.redislease.io~1web", json!("active")),
        (WORKLOAD_METADATA, "/metadata/finalizers", json!(["example.com/stay"])),
        (WORKLOAD_METADATA, "/metadata/ownerReferences", json!([owner])),
    ]
    .into_iter()
    .map(|(message, pointer, value)| (message, Patch("web", activate("active", start, &[(pointer, value)]))))
    .collect();
    cases.push((WORKLOAD_LABELS, Patch("web", json!({"metadata": {"labels": {"app": null}}}))));
    let without = json!({"metadata": {"annotations": {"redislease.io/priority": null}}});
    cases.push((WORKLOAD_ANNOTATIONS, Patch("web", without)));
    for spec in &workload.others {
        cases.push((WORKLOAD_SPEC, Patch("web", activate("active", spec, &[]))));
        cases.push((WORKLOAD_SPEC, Patch("web", json!({"spec": spec}))));
    }
    for part in workload.parts {
        cases.push(if part.ends_with("/scale") {
            (PARTS, PatchPart("scale", "web", json!({"spec": start})))
        } else if workload.kind == "cronjob" {
            (PARTS, PatchPart("status", "web", json!({"status": {"lastScheduleTime": "2026-01-01T00:00:00Z"}})))
        } else {
            (PARTS, PatchPart("status", "web", json!({"status": {"replicas": 7}})))
        });
    }
    cases
}

#[test]
fn the_operator_can_start_and_stop_workloads_and_change_nothing_else() -> Result<()> {
    let options = InstallationOptions {
        allow_scale: true,
        allow_suspend: true,
        ..InstallationOptions::new(env!("CARGO_BIN_EXE_redislease"))
    };
    let installation = &Installation::start(&options)?;
    let values = &["--set=rbac.allowScale=true", "--set=rbac.allowSuspend=true"];
    for workload in workloads() {
        let (kind, namespace) = (workload.kind, workload.kind);
        let requests = Requests { installation, namespace, kind, values };
        installation.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))?;
        requests.send(&Create(workload.object.clone()), &[])?;
        requests.wait_for_policy(WORKLOAD_SPEC, &Patch("web", json!({"spec": workload.others[0]})))?;
        grant(installation, namespace, workload.group, workload.parts)?;
        requests.refused("workloads", &refused_changes(&workload))?;

        // What the operator does with a workload. Its controller may write the status at the same time.
        let read = |field: &str| {
            let field = format!("--output=jsonpath={{{field}}}");
            installation.control_plane().kubectl(&["get", kind, "web", "--namespace", namespace, &field])
        };
        for (role, spec) in ["active", "standby"].into_iter().zip(&workload.specs) {
            installation.wait_for(&format!("the {kind} is {role}"), SOON, || {
                let (uid, version) = (read(".metadata.uid")?, read(".metadata.resourceVersion")?);
                let identified = [("/metadata/uid", json!(uid)), ("/metadata/resourceVersion", json!(version))];
                Ok(requests.allowed(&Patch("web", activate(role, spec, &identified)))?)
            })?;
            let written: Value = serde_json::from_str(&read(".spec")?).expect("JSON");
            for (field, value) in spec.as_object().into_iter().flatten() {
                assert_eq!(written[field], *value, "{kind} {field}");
            }
            assert_eq!(read(".metadata.labels.lease\\.redislease\\.io/web")?, role, "{kind}");
        }
        let marks = json!({
            "labels": {"lease.redislease.io/web": null},
            "annotations": {"token.redislease.io/web": null},
        });
        requests.allowed(&Patch("web", json!({"metadata": marks})))?;
    }
    no_warnings(installation)
}

#[test]
fn the_operator_cannot_change_workloads_by_default() -> Result<()> {
    let installation = shared();
    let namespace = "workloads";
    installation.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))?;
    for workload in workloads() {
        let requests = Requests { installation, namespace, kind: workload.kind, values: &[] };
        requests.send(&Create(workload.object.clone()), &[])?;
        for (role, spec) in ["active", "standby"].into_iter().zip(&workload.specs) {
            let request = Patch("web", activate(role, spec, &[]));
            let refused = requests.send(&request, &[&requests.operator(), "--dry-run=server"]);
            let refused = refused.expect_err(&format!("{request:?} is refused")).to_string();
            let message = format!("cannot patch resource \"{}s\"", workload.kind);
            assert!(refused.contains(&message), "{request:?}: {refused}");
            requests.send(&request, &["--dry-run=server"])?;
        }
    }
    Ok(())
}
