//! The rights that the operator needs, as the chart grants them.

use k8s_openapi::api::authorization::v1::ResourceAttributes;
use redislease_plan::api::RedisQuorum;

use super::scope::Scope;

/// One right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Right {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    /// Empty for all namespaces, and for objects without a namespace.
    namespace: String,
    name: String,
    pub needed_for: &'static str,
}

impl Right {
    /// Such as `patch pods in namespace shop`.
    pub fn text(&self) -> String {
        let mut text = format!("{} {}", self.verb, self.resource);
        if !self.subresource.is_empty() {
            text = format!("{text}/{}", self.subresource);
        }
        if !self.name.is_empty() {
            text = format!("{text} {}", self.name);
        }
        match self.namespace.as_str() {
            "" => text,
            namespace => format!("{text} in namespace {namespace}"),
        }
    }

    /// For an access review.
    pub fn attributes(&self) -> ResourceAttributes {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        ResourceAttributes {
            verb: given(self.verb),
            group: given(self.group),
            resource: given(self.resource),
            subresource: given(self.subresource),
            namespace: given(&self.namespace),
            name: given(&self.name),
            ..ResourceAttributes::default()
        }
    }
}

const LEASES: &str = "redislease.io";
/// What the operator does with a workload that it starts and stops, beside reading it.
const SWITCHING: [&str; 3] = ["list", "watch", "patch"];

/// Every right of an operator with these namespaces and features. The right to read Kubernetes nodes is optional.
pub(super) fn needed(scope: &Scope) -> Vec<Right> {
    let (system, watched) = (&scope.namespace, &scope.watched);
    let mut rights = Vec::new();
    for verb in ["get", "list", "watch"] {
        rights.push(right(verb, LEASES, "redisquorums", "", system, "to use RedisQuorums"));
    }
    rights.push(right("update", LEASES, "redisquorums", "status", system, "to show the state of the Redis nodes"));
    rights.push(right("create", "events.k8s.io", "events", "", system, "to report events of RedisQuorums"));
    rights.push(Right {
        name: "kube-system".to_owned(),
        ..right("get", "", "namespaces", "", "kube-system", "to distinguish clusters that share a quorum")
    });
    let everywhere = [String::new()];
    for namespace in if watched.is_empty() { &everywhere[..] } else { watched } {
        add_for_leases(scope, namespace, &mut rights);
    }
    if watched.is_empty() {
        for verb in ["get", "list", "watch"] {
            rights.push(right(verb, "", "namespaces", "", "", "for allowedNamespaces"));
        }
    }
    rights
}

/// Adds the rights that the leases in `namespace` need.
fn add_for_leases(scope: &Scope, namespace: &str, rights: &mut Vec<Right>) {
    for verb in ["get", "list", "watch"] {
        rights.push(right(verb, LEASES, "redisleases", "", namespace, "to read leases"));
        rights.push(right(verb, "", "pods", "", namespace, "to elect a holder"));
    }
    rights.push(right("update", LEASES, "redisleases", "status", namespace, "to publish terms"));
    rights.push(right("patch", "", "pods", "", namespace, "to label pods"));
    if scope.allowed.scheduling_gate {
        rights.push(right("delete", "", "pods", "", namespace, "for activation.schedulingGate"));
    }
    if scope.allowed.scale {
        for (verb, workload) in SWITCHING.map(|verb| ["deployments", "statefulsets"].map(|of| (verb, of))).concat() {
            rights.push(right(verb, "apps", workload, "", namespace, "for activation.scale"));
        }
    }
    if scope.allowed.suspend {
        for verb in SWITCHING {
            rights.push(right(verb, "batch", "cronjobs", "", namespace, "for activation.suspend"));
        }
    }
    for workload in ["deployments", "statefulsets", "daemonsets", "replicasets"] {
        rights.push(right("get", "apps", workload, "", namespace, "for candidates.workloadRef"));
    }
    for workload in ["jobs", "cronjobs"] {
        rights.push(right("get", "batch", workload, "", namespace, "for candidates.workloadRef"));
    }
    if scope.annotations {
        let mut of_annotations = |verb, group, resource| {
            rights.push(right(verb, group, resource, "", namespace, "for leases by annotation"));
        };
        for verb in ["create", "patch", "delete"] {
            of_annotations(verb, LEASES, "redisleases");
        }
        for verb in ["list", "watch"] {
            for workload in ["deployments", "statefulsets", "daemonsets"] {
                of_annotations(verb, "apps", workload);
            }
            for workload in ["jobs", "cronjobs"] {
                of_annotations(verb, "batch", workload);
            }
        }
    }
    if !namespace.is_empty() {
        // A Role can grant a right on its own namespace only by name.
        let labels = right("get", "", "namespaces", "", namespace, "for allowedNamespaces");
        rights.push(Right { name: namespace.to_owned(), ..labels });
    }
    rights.push(right("create", "events.k8s.io", "events", "", namespace, "to report events"));
}

fn right(
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    namespace: &str,
    needed_for: &'static str,
) -> Right {
    let (name, namespace) = (String::new(), namespace.to_owned());
    Right { verb, group, resource, subresource, namespace, name, needed_for }
}

/// The right to read each Secret that the quorum names.
pub(super) fn of_secrets(scope: &Scope, quorum: &RedisQuorum) -> Vec<Right> {
    let auth = quorum.spec.auth.iter().map(|auth| &auth.secret_ref.name);
    let tls = quorum.spec.tls.iter().map(|tls| &tls.secret_ref.name);
    let mut names: Vec<&String> = auth.chain(tls).collect();
    names.dedup();
    let right = |name: &String| Right {
        verb: "get",
        group: "",
        resource: "secrets",
        subresource: "",
        namespace: scope.namespace.clone(),
        name: name.clone(),
        needed_for: "to log in to the Redis nodes",
    };
    names.into_iter().map(right).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_secret_of_a_quorum_needs_a_right() {
        let nodes = json!([{"name": "a", "address": "a:6379"}]);
        let rights = |auth: &str, tls: &str| -> Vec<String> {
            let spec = json!({
                "nodes": nodes, "auth": {"secretRef": {"name": auth}}, "tls": {"secretRef": {"name": tls}}
            });
            let quorum = RedisQuorum::new("q", serde_json::from_value(spec).unwrap());
            let scope = Scope { namespace: "system".to_owned(), ..Scope::default() };
            of_secrets(&scope, &quorum).iter().map(Right::text).collect()
        };
        let [password, certificates] =
            ["get secrets password in namespace system", "get secrets tls in namespace system"];
        assert_eq!(rights("password", "tls"), [password, certificates]);
        assert_eq!(rights("tls", "tls"), [certificates], "both use one Secret");
    }
    use redislease_plan::plan::Allowed;

    fn with(allowed: Allowed) -> Scope {
        Scope { allowed, ..Scope::default() }
    }

    #[test]
    fn rights_are_in_all_or_in_the_watched_namespaces() {
        let texts = |watched: &[&str], features: Scope| -> Vec<String> {
            let watched = watched.iter().map(|&name| name.to_owned()).collect();
            let scope = Scope { namespace: "system".to_owned(), watched, ..features };
            needed(&scope).iter().map(Right::text).collect()
        };
        let all = texts(&[], Scope { annotations: true, ..Scope::default() });
        for text in
            ["patch pods", "update redisquorums/status in namespace system", "watch namespaces", "watch cronjobs"]
        {
            assert!(all.contains(&text.to_owned()), "{text}: {all:?}");
        }
        let some = texts(&["shop", "jobs"], with(Allowed { scheduling_gate: true, ..Allowed::default() }));
        for text in [
            "patch pods in namespace jobs",
            "get namespaces kube-system in namespace kube-system",
            "create events in namespace system",
            "create events in namespace shop",
        ] {
            assert!(some.contains(&text.to_owned()), "{text}: {some:?}");
        }
        assert!(some.contains(&"get namespaces shop in namespace shop".to_owned()), "{some:?}");
        assert!(
            !some.iter().any(|text| text.starts_with("create redisleases") || text.contains("watch jobs")),
            "{some:?}"
        );
        assert!(!some.contains(&"patch pods".to_owned()) && !some.contains(&"watch namespaces".to_owned()));
        assert!(some.contains(&"delete pods in namespace jobs".to_owned()), "{some:?}");
        assert!(!all.contains(&"delete pods".to_owned()), "{all:?}");

        let switching = |kinds: &[&str]| -> Vec<String> {
            let of = |verb: &str| {
                kinds.iter().map(move |kind| format!("{verb} {kind} in namespace shop")).collect::<Vec<_>>()
            };
            SWITCHING.iter().flat_map(|verb| of(verb)).collect()
        };
        let scale = switching(&["deployments", "statefulsets"]);
        let suspend = switching(&["cronjobs"]);
        let of_kinds = |text: &str| ["deployments", "statefulsets", "cronjobs"].iter().any(|kind| text.contains(kind));
        let of_workloads = |features: Scope| -> Vec<String> {
            let is_switching = |text: &String| SWITCHING.iter().any(|verb| text.starts_with(verb)) && of_kinds(text);
            texts(&["shop"], features).into_iter().filter(is_switching).collect()
        };
        assert_eq!(of_workloads(Scope::default()), [""; 0]);
        assert_eq!(of_workloads(with(Allowed { scale: true, ..Allowed::default() })), scale);
        assert_eq!(of_workloads(with(Allowed { suspend: true, ..Allowed::default() })), suspend);
    }
}
