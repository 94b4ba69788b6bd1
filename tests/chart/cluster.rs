//! What the API server says about the rendered objects.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use redislease_lab::{Helm, Installation, InstallationOptions, Result, SYSTEM};

use crate::combinations;

/// A control plane with the operator's rights as the chart has them by default, and no operator.
pub fn shared() -> &'static Installation {
    static SHARED: LazyLock<Installation> = LazyLock::new(|| {
        Installation::start(&InstallationOptions::new(env!("CARGO_BIN_EXE_redislease"))).expect("the cluster starts")
    });
    &SHARED
}

#[test]
fn the_api_server_accepts_every_mixture() -> Result<()> {
    let cluster = shared().control_plane();
    cluster.apply(include_str!("monitoring-crds.yaml"))?;
    cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"])?;
    for namespace in ["shop", "billing"] {
        cluster.kubectl(&["create", "namespace", namespace])?;
    }
    // Its nodes are others than those of the combinations.
    cluster.kubectl(&["delete", "redisquorum", "default", "--namespace", SYSTEM])?;
    let apply = |manifest: &str| {
        let args =
            ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "--filename=-"];
        cluster.kubectl_with_input(&args, manifest)
    };
    let helm = Helm::new()?;
    let mut accounts = BTreeSet::from(["redislease-operator".to_owned()]);
    for combination in combinations::mixed() {
        let args: Vec<&str> = combination.iter().map(String::as_str).collect();
        let manifest = helm.template(&args)?;
        // The API server admits the pod of `helm test` only if its service account exists.
        for account in manifest.lines().filter_map(|line| line.strip_prefix("  serviceAccountName: ")) {
            let account = account.trim_matches('"');
            if accounts.insert(account.to_owned()) {
                let account = serde_json::json!({
                    "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": SYSTEM},
                });
                cluster.apply(&account.to_string())?;
            }
        }
        if let Err(error) = apply(&manifest) {
            panic!("{combination:?}: {error}");
        }
        if combination.is_empty() {
            let misspelt = manifest.replace("topologyKey:", "topologyKye:");
            let refused = apply(&misspelt).expect_err("the API server knows all fields").to_string();
            assert!(refused.contains("topologyKye"), "{refused}");
        }
    }
    Ok(())
}

#[test]
fn the_api_server_accepts_the_examples_of_the_chart() -> Result<()> {
    let chart = include_str!("../../charts/redislease/Chart.yaml");
    let (_, examples) = chart.split_once("artifacthub.io/crdsExamples: |\n").expect("the examples");
    let examples: Vec<&str> = examples.lines().take_while(|line| line.starts_with("    ")).collect();
    // Another test changes the quorum `default` and the namespaces.
    let examples = examples.join("\n").replace("namespace: shop", &format!("namespace: {SYSTEM}"));
    let examples = examples.replace("name: default", "name: example");
    let list = format!("apiVersion: v1\nkind: List\nitems:\n{examples}\n");
    let create = ["create", "--dry-run=server", "--validate=strict", "--output=name", "--filename=-"];
    let created = shared().control_plane().kubectl_with_input(&create, &list)?;
    assert_eq!(
        created.lines().collect::<Vec<_>>(),
        ["redislease.redislease.io/billing", "redisquorum.redislease.io/example"]
    );
    Ok(())
}
