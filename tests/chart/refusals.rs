//! Values that the chart refuses, each with a message that says what is wrong.

use redislease_lab::{Helm, Result};

/// The arguments, and what the message contains.
const REFUSED: &[(&[&str], &[&str])] = &[
    (&["--set=replica=3"], &["additional properties 'replica' not allowed"]),
    (&["--set=metrics.servicemonitor.enabled=true"], &["/metrics", "'servicemonitor' not allowed"]),
    (&["--set=replicas=two"], &["/replicas", "got string, want integer"]),
    (&["--set=replicas=0"], &["/replicas", "minimum: got 0, want 1"]),
    (&["--set=replicas=null"], &["missing property 'replicas'"]),
    (&["--set=nodeLossTolerationSeconds=null"], &["missing property 'nodeLossTolerationSeconds'"]),
    (&["--set=metrics.port=null"], &["/metrics", "missing property 'port'"]),
    (&["--set=networkPolicy.apiServerPorts=null"], &["/networkPolicy", "missing property 'apiServerPorts'"]),
    (&["--set-json=networkPolicy.dnsPorts=[]"], &["/networkPolicy/dnsPorts", "minItems: got 0, want 1"]),
    (&["--set=cluster.name=eu/west"], &["/cluster/name", "does not match pattern"]),
    (&["--set=image.repository=redislease:0.1.0"], &["/image/repository", "does not match pattern"]),
    (
        &["--set=image.repository=registry.example.com:5000/redislease:0.1.0"],
        &["/image/repository", "does not match pattern"],
    ),
    (&["--set=devRedis.image.repository=redis:8"], &["/devRedis/image/repository", "does not match pattern"]),
    (&["--set=image.digest=sha256:12"], &["/image/digest", "does not match pattern"]),
    (
        &["--set=image.pullPolicy=Sometimes"],
        &["/image/pullPolicy", "value must be one of 'Always', 'IfNotPresent', 'Never'"],
    ),
    (&["--set=podSecurityContext.runAsUser=0"], &["/podSecurityContext/runAsUser", "minimum: got 0, want 1"]),
    // The chart sets them itself, and the selector of the Deployment needs them.
    (&["--set=commonLabels.app\\.kubernetes\\.io/part-of=platform"], &["/commonLabels", "app.kubernetes.io/part-of"]),
    (&["--set=podLabels.app\\.kubernetes\\.io/name=other"], &["/podLabels", "app.kubernetes.io/name"]),
    (
        &["--set=podAnnotations.kubectl\\.kubernetes\\.io/default-container=other"],
        &["/podAnnotations", "kubectl.kubernetes.io/default-container"],
    ),
    (
        &["--set=metrics.podMonitor.additionalLabels.app\\.kubernetes\\.io/name=other"],
        &["/metrics/podMonitor/additionalLabels", "app.kubernetes.io/name"],
    ),
    (
        &["--set=metrics.prometheusRule.additionalLabels.helm\\.sh/chart=other"],
        &["/metrics/prometheusRule/additionalLabels", "helm.sh/chart"],
    ),
    (&["--set=metrics.dashboard.labels.helm\\.sh/chart=other"], &["/metrics/dashboard/labels", "helm.sh/chart"]),
    (&["--set=devRedis.image.tag="], &["/devRedis/image/tag", "does not match pattern"]),
    (&["--set=log.format=xml"], &["/log/format", "value must be one of 'text', 'json'"]),
    (&["--set=metrics.port=80"], &["/metrics/port", "minimum: got 80, want 1,024"]),
    // The kubelet would reach no probe.
    (&["--set=metrics.listenAddress=127.0.0.1"], &["/metrics/listenAddress", "'not' failed"]),
    (&["--set=metrics.listenAddress=[::1]"], &["/metrics/listenAddress", "'not' failed"]),
    // The critical alerts use rate(...[3m]), which sees nothing with less than two scrapes.
    (&["--set=metrics.serviceMonitor.interval=2m"], &["/metrics/serviceMonitor/interval", "does not match pattern"]),
    (&["--set=metrics.podMonitor.interval=61s"], &["/metrics/podMonitor/interval", "does not match pattern"]),
    (&["--set=metrics.podMonitor.interval=0s"], &["/metrics/podMonitor/interval", "does not match pattern"]),
    (&["--set=watchNamespaces={shop,shop}"], &["/watchNamespaces", "items at 0 and 1 are equal"]),
    (&["--set=watchNamespaces={Shop}"], &["/watchNamespaces/0", "does not match pattern"]),
    (&["--set=tolerations[0].efect=NoExecute"], &["/tolerations/0", "'efect' not allowed"]),
    (&["--set=rbac.allowSchedulingGates=true"], &["/rbac", "'allowSchedulingGates' not allowed"]),
    (&["--set=quorums[0].name=q"], &["/quorums/0", "missing property 'nodes'"]),
    (
        &[
            "--set=quorums[0].name=q,quorums[0].password=secret,quorums[0].nodes[0].name=a,quorums[0].nodes[0].address=a:1",
        ],
        &["/quorums/0", "'password' not allowed"],
    ),
    (
        &[
            "--set=quorums[0].name=q,quorums[0].nodes[0].name=a,quorums[0].nodes[0].address=a:1",
            "--set=quorums[0].tls.insecure=true",
        ],
        &["/quorums/0/tls", "'insecure' not allowed", "missing property 'existingSecret'"],
    ),
    (
        &["--set=quorums[0].name=q,quorums[0].nodes[0].name=a,quorums[0].nodes[0].address=redis-a"],
        &["/quorums/0/nodes/0/address", "does not match pattern"],
    ),
    (
        &["--set=quorums[0].name=q,quorums[0].nodes[0].name=a,quorums[0].nodes[0].address=a:1"],
        &[
            "quorum \"q\" has one node, which tolerates no failure: use three nodes, or set allowSingleNode: true for tests.",
        ],
    ),
    (
        &[
            "--set=quorums[0].name=q,quorums[0].nodes[0].name=a,quorums[0].nodes[0].address=a:1",
            "--set=quorums[0].nodes[1].name=b,quorums[0].nodes[1].address=a:1",
        ],
        &["quorum \"q\" has two nodes with the address \"a:1\": two nodes on one server fail together."],
    ),
    (
        &[
            "--set=quorums[0].name=q,quorums[0].nodes[0].name=a,quorums[0].nodes[0].address=a:1",
            "--set=quorums[0].nodes[1].name=a,quorums[0].nodes[1].address=b:1",
        ],
        &["quorum \"q\" has two nodes with the name \"a\": each needs its own name."],
    ),
    (
        &[
            "--set=quorums[0].name=q,quorums[0].allowSingleNode=true,quorums[0].nodes[0].name=a,quorums[0].nodes[0].address=a:1",
            "--set=quorums[1].name=q,quorums[1].allowSingleNode=true,quorums[1].nodes[0].name=a,quorums[1].nodes[0].address=b:1",
        ],
        &["quorums has two entries with the name \"q\": each needs its own name."],
    ),
    (
        &[
            "--set=devRedis.enabled=true",
            "--set=quorums[0].name=default,quorums[0].allowSingleNode=true,quorums[0].nodes[0].name=a,quorums[0].nodes[0].address=a:1",
        ],
        &[
            "devRedis.enabled creates the quorum \"default\", and quorums has an entry with this name: rename the entry, or disable devRedis.",
        ],
    ),
    (
        &[
            "--set=rbac.secretNames={redis-tls},quorums[0].name=q,quorums[0].allowSingleNode=true",
            "--set=quorums[0].nodes[0].name=a,quorums[0].nodes[0].address=a:1,quorums[0].existingSecret=redis-password",
        ],
        &[
            "quorum \"q\" has existingSecret: redis-password, which rbac.secretNames does not allow the operator to read: add it there.",
        ],
    ),
    (
        &[
            "--set=rbac.secretNames={redis-password},quorums[0].name=q,quorums[0].allowSingleNode=true",
            "--set=quorums[0].nodes[0].name=a,quorums[0].nodes[0].address=a:1,quorums[0].existingSecret=redis-password",
            "--set=quorums[0].tls.existingSecret=redis-tls",
        ],
        &["quorum \"q\" has tls.existingSecret: redis-tls, which rbac.secretNames does not allow"],
    ),
    (
        &["--set=serviceAccount.create=false"],
        &[
            "serviceAccount.name is required if serviceAccount.create is false: name the ServiceAccount of the operator.",
        ],
    ),
    (
        &["--set=metrics.serviceMonitor.enabled=true,metrics.podMonitor.enabled=true"],
        &["metrics.serviceMonitor and metrics.podMonitor are both enabled, so Prometheus would count everything twice"],
    ),
    (
        &["--set=metrics.serviceMonitor.enabled=true,metrics.service.enabled=false"],
        &["metrics.serviceMonitor needs metrics.service.enabled"],
    ),
    // Names of Services begin with it.
    (&["--set=fullnameOverride=1leases"], &["/fullnameOverride", "does not match pattern"]),
    (
        &["--set=quorums[0].name=q,quorums[0].nodes[0].name=a,quorums[0].nodes[0].address=redis-a:70000"],
        &["/quorums/0/nodes/0/address", "does not match pattern"],
    ),
    (&["--set=metrics.listenAddress=999.1.1.1"], &["/metrics/listenAddress", "does not match pattern"]),
    (
        &["--kube-version=1.30.9"],
        &["chart requires kubeVersion: >=1.31.0-0 which is incompatible with Kubernetes v1.30.9"],
    ),
];

#[test]
fn wrong_values_are_refused_with_the_reason() -> Result<()> {
    let helm = Helm::new()?;
    for (args, parts) in REFUSED {
        let refused = helm.template(args).expect_err(&format!("{args:?} is refused")).to_string();
        for part in *parts {
            assert!(refused.contains(part), "{args:?}: {part:?} is not in\n{refused}");
        }
    }
    // The longest interval that the alerts allow.
    for interval in ["", "1s", "59s", "60s", "1m"] {
        helm.template(&[&format!("--set=metrics.podMonitor.enabled=true,metrics.podMonitor.interval={interval}")])?;
    }
    Ok(())
}

/// Helm lets the name of a release have dots and begin with a digit. The name of a Service can do neither.
#[test]
fn release_names_that_begin_no_name_of_a_service_are_refused() -> Result<()> {
    let (helm, chart) = (Helm::new()?, Helm::chart());
    for (release, name) in [("1st", "1st-redislease"), ("redislease.shop", "redislease.shop")] {
        let refused = helm.run(&["template", release, &chart]).expect_err(&format!("{release} is refused")).to_string();
        let reason = format!("no name of a Service can begin with {name:?}: set fullnameOverride");
        assert!(refused.contains(&reason), "{refused}");
        helm.run(&["template", release, &chart, "--set=fullnameOverride=leases"])?;
    }
    Ok(())
}
