//! The rights that the operator needs, as the chart grants them.

use k8s_openapi::api::authorization::v1::ResourceAttributes;
use redislease_plan::api::RedisQuorum;

use super::scope::Scope;

/// One right.
#[derive(Clone, Debug)]
pub(super) struct Right {
    /// For an access review. Without a namespace: in all namespaces, or on objects without one.
    pub attributes: ResourceAttributes,
    pub needed_for: &'static str,
}

impl Right {
    /// `resource` can name a subresource, such as `pods/status`. An empty `namespace` or `name` means all of them.
    fn new(verb: &str, group: &str, resource: &str, namespace: &str, name: &str, needed_for: &'static str) -> Self {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let attributes = ResourceAttributes {
            verb: given(verb),
            group: given(group),
            resource: given(resource),
            subresource: given(subresource),
            namespace: given(namespace),
            name: given(name),
            ..ResourceAttributes::default()
        };
        Self { attributes, needed_for }
    }

    /// Such as `patch pods in namespace shop`.
    pub fn text(&self) -> String {
        let ResourceAttributes { verb, resource, subresource, name, namespace, .. } = &self.attributes;
        let part = |before: &str, part: &Option<String>| {
            part.as_ref().map(|part| format!("{before}{part}")).unwrap_or_default()
        };
        let what = [part("", verb), part(" ", resource), part("/", subresource), part(" ", name)].concat();
        what + &part(" in namespace ", namespace)
    }
}

const LEASES: &str = "redislease.io";
const EVENTS: &str = "events.k8s.io";
const READ: &[&str] = &["get", "list", "watch"];
/// What the operator does with a workload that it starts and stops, beside reading it.
const SWITCHING: &[&str] = &["list", "watch", "patch"];

/// Rights on some resources of one group: the verbs, the group, the resources with their subresources, and what needs the rights.
type Rows = (&'static [&'static str], &'static str, &'static [&'static str], &'static str);

fn rights_of(namespace: &str, rows: &[Rows]) -> Vec<Right> {
    let mut rights = Vec::new();
    for &(verbs, group, resources, needed_for) in rows {
        for verb in verbs {
            let right = |resource: &&str| Right::new(verb, group, resource, namespace, "", needed_for);
            rights.extend(resources.iter().map(right));
        }
    }
    rights
}

/// The right to read one object by its name.
fn to_get(resource: &str, namespace: &str, name: &str, needed_for: &'static str) -> Right {
    Right::new("get", "", resource, namespace, name, needed_for)
}

/// Every right of an operator with these namespaces and features. The right to read Kubernetes nodes is optional.
pub(super) fn needed(scope: &Scope) -> Vec<Right> {
    let watched = &scope.watch_namespaces;
    let mut rights = rights_of(
        &scope.namespace,
        &[
            (READ, LEASES, &["redisquorums"], "to use RedisQuorums"),
            (&["update"], LEASES, &["redisquorums/status"], "to show the state of the Redis nodes"),
            (&["create"], EVENTS, &["events"], "to report events of RedisQuorums"),
        ],
    );
    let kube_system = "kube-system";
    rights.push(to_get("namespaces", kube_system, kube_system, "to distinguish clusters that share a quorum"));
    if watched.is_empty() {
        rights.extend(for_leases(scope, ""));
        rights.extend(rights_of("", &[(READ, "", &["namespaces"], "for allowedNamespaces")]));
    }
    for namespace in watched {
        rights.extend(for_leases(scope, namespace));
        // A Role can grant a right on its own namespace only by name.
        rights.push(to_get("namespaces", namespace, namespace, "for allowedNamespaces"));
    }
    rights
}

/// The rights that the leases in `namespace` need; in all namespaces if it is empty.
fn for_leases(scope: &Scope, namespace: &str) -> Vec<Right> {
    let mut rows: Vec<Rows> = vec![
        (READ, LEASES, &["redisleases"], "to read leases"),
        (READ, "", &["pods"], "to elect a holder"),
        (&["update"], LEASES, &["redisleases/status"], "to publish terms"),
        (&["patch"], "", &["pods"], "to label pods"),
        (&["get"], "apps", &["deployments", "statefulsets", "daemonsets", "replicasets"], "for candidates.workloadRef"),
        (&["get"], "batch", &["jobs", "cronjobs"], "for candidates.workloadRef"),
        (&["create"], EVENTS, &["events"], "to report events"),
    ];
    if scope.activations.allow_scheduling_gate {
        rows.push((&["delete"], "", &["pods"], "for activation.schedulingGate"));
    }
    if scope.activations.allow_scale {
        rows.push((SWITCHING, "apps", &["deployments", "statefulsets"], "for activation.scale"));
    }
    if scope.activations.allow_suspend {
        rows.push((SWITCHING, "batch", &["cronjobs"], "for activation.suspend"));
    }
    if scope.annotations {
        let needed_for = "for leases by annotation";
        rows.push((&["create", "patch", "delete"], LEASES, &["redisleases"], needed_for));
        rows.push((&["list", "watch"], "apps", &["deployments", "statefulsets", "daemonsets"], needed_for));
        rows.push((&["list", "watch"], "batch", &["jobs", "cronjobs"], needed_for));
    }
    rights_of(namespace, &rows)
}

/// The right to read each Secret that the quorum names.
pub(super) fn of_secrets(scope: &Scope, quorum: &RedisQuorum) -> Vec<Right> {
    let auth = quorum.spec.auth.iter().map(|auth| &auth.secret_ref.name);
    let tls = quorum.spec.tls.iter().map(|tls| &tls.secret_ref.name);
    let mut names: Vec<&String> = auth.chain(tls).collect();
    names.dedup();
    let right = |name: &String| to_get("secrets", &scope.namespace, name, "to log in to the Redis nodes");
    names.into_iter().map(right).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::activations::Activations;

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

    fn with(activations: Activations) -> Scope {
        Scope { activations, ..Scope::default() }
    }

    #[test]
    fn rights_are_in_all_or_in_the_watched_namespaces() {
        let texts = |watched: &[&str], features: Scope| -> Vec<String> {
            let watch_namespaces = watched.iter().map(|&name| name.to_owned()).collect();
            let scope = Scope { namespace: "system".to_owned(), watch_namespaces, ..features };
            needed(&scope).iter().map(Right::text).collect()
        };
        let all = texts(&[], Scope { annotations: true, ..Scope::default() });
        for text in
            ["patch pods", "update redisquorums/status in namespace system", "watch namespaces", "watch cronjobs"]
        {
            assert!(all.contains(&text.to_owned()), "{text}: {all:?}");
        }
        let some =
            texts(&["shop", "jobs"], with(Activations { allow_scheduling_gate: true, ..Activations::default() }));
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
        assert_eq!(of_workloads(with(Activations { allow_scale: true, ..Activations::default() })), scale);
        assert_eq!(of_workloads(with(Activations { allow_suspend: true, ..Activations::default() })), suspend);
    }
}
