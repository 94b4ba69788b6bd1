//! Combinations of values: every switch for itself, and mixtures of all switches.

use redislease_lab::Numbers;

/// A value that differs from its default, as an argument of Helm.
const SWITCHES: &[&[&str]] = &[
    &["cluster.name=eu-west-1"],
    &["replicas=1"],
    &["image.digest=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"],
    &["image.pullPolicy=Always", "imagePullSecrets={registry}"],
    &["log.level=debug", "log.format=text"],
    &["crds.enabled=false"],
    &["crds.keep=false"],
    &["serviceAccount.name=mine", "serviceAccount.annotations.a=b"],
    &["serviceAccount.create=false", "serviceAccount.name=theirs"],
    &["rbac.create=false"],
    &["rbac.readNodes=false"],
    &["rbac.allowSchedulingGate=true"],
    &["rbac.allowScale=true"],
    &["rbac.allowSuspend=true"],
    &["rbac.secretNames={redis-password,redis-tls}"],
    &["rbac.aggregatedRoles=false"],
    &["admissionPolicy.enabled=false"],
    &["annotations.enabled=false"],
    &["podDisruptionBudget.enabled=false"],
    &["priorityClassName=system-cluster-critical"],
    &["resources.limits.cpu=1", "resources.requests.memory=256Mi"],
    &["podSecurityContext.runAsUser=null", "podSecurityContext.runAsGroup=null"],
    &["tolerations[0].key=dedicated", "tolerations[0].operator=Exists", "nodeLossTolerationSeconds=0"],
    &["nodeSelector.disk=ssd", "podLabels.cost=one", "podAnnotations.a=b", "commonLabels.cost=shared"],
    &[
        "topologySpreadConstraints[0].topologyKey=rack",
        "topologySpreadConstraints[0].maxSkew=1",
        "topologySpreadConstraints[0].whenUnsatisfiable=ScheduleAnyway",
    ],
    &["metrics.listenAddress=[::]", "metrics.port=9090"],
    &["metrics.service.enabled=false"],
    &[
        "metrics.podMonitor.enabled=true",
        "metrics.podMonitor.interval=30s",
        "metrics.podMonitor.additionalLabels.cost=b",
    ],
    &[
        "metrics.prometheusRule.enabled=true",
        "metrics.prometheusRule.acrossClusters=true",
        "metrics.prometheusRule.additionalLabels.cost=b",
    ],
    &["metrics.dashboard.enabled=true", "metrics.dashboard.labels.cost=b"],
    &["networkPolicy.enabled=true", "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.a=b"],
    &["watchNamespaces={shop,billing}"],
    &["devRedis.enabled=true"],
    &[
        "quorums[0].name=prod",
        "quorums[0].nodes[0].name=a",
        "quorums[0].nodes[0].address=redis-a:6379",
        "quorums[0].nodes[1].name=b",
        "quorums[0].nodes[1].address=redis-b:6379",
        "quorums[0].nodes[2].name=c",
        "quorums[0].nodes[2].address=redis-c:7000",
        "quorums[0].existingSecret=redis-password",
        "quorums[0].tls.existingSecret=redis-tls",
        "quorums[0].tls.serverName=redis.example.com",
        "quorums[0].allowedNamespaces.matchLabels.team=shop",
    ],
    &["fullnameOverride=leases", "nameOverride=leader"],
];

/// A ServiceMonitor excludes two of the switches.
const SERVICE_MONITOR: &[&str] =
    &["metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.additionalLabels.a=b"];

/// How many mixtures there are.
const MIXTURES: u64 = 28;

/// The arguments of Helm for each combination.
pub fn all() -> Vec<Vec<String>> {
    SWITCHES.iter().map(|switch| arguments(&[*switch])).chain(mixed()).collect()
}

/// The same without the combinations of a single switch, but for those that no mixture has: no switch, and the ServiceMonitor.
pub fn mixed() -> Vec<Vec<String>> {
    let others = [arguments(&[]), arguments(&[SERVICE_MONITOR])];
    others.into_iter().chain((0..MIXTURES).map(|number| arguments(&mixture(number)))).collect()
}

fn arguments(switches: &[&[&str]]) -> Vec<String> {
    switches.concat().iter().map(|value| format!("--set={value}")).collect()
}

/// About half of all switches, chosen by the bits of a well mixed number.
fn mixture(number: u64) -> Vec<&'static [&'static str]> {
    let bits = Numbers(number).draw();
    SWITCHES.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1).map(|(_, switch)| *switch).collect()
}

#[test]
fn mixtures_combine_each_two_switches() {
    let mixtures: Vec<Vec<&[&str]>> = (0..MIXTURES).map(mixture).collect();
    for (index, one) in SWITCHES.iter().enumerate() {
        for other in &SWITCHES[..index] {
            let both = mixtures.iter().any(|switches| switches.contains(one) && switches.contains(other));
            assert!(both, "no mixture has {one:?} and {other:?}");
        }
    }
}
