//! The manifests for those without Helm, on a real API server, as docs/install.md says.

use std::{os::unix::fs::symlink, time::Duration};

use redislease_lab::{
    Block, Components, ControlPlane, Installation, InstallationOptions, LeaseState, Reader, Result, SYSTEM, read,
    repository,
};
use serde_json::Value;

#[test]
fn the_manifests_install_an_operator_without_helm() -> Result<()> {
    let page = read("docs/install.md");
    let blocks = Block::of(&page);
    let block = |text: &str| blocks.iter().find(|block| block.text.contains(text)).expect("the page shows it").text;
    let reader = Reader::new()?;
    symlink(repository().join("deploy"), reader.folder().join("deploy")).expect("a link to the manifests");
    let options = InstallationOptions {
        cluster: "eu-west-1".to_owned(),
        password: Some("correct".to_owned()),
        ..InstallationOptions::new(env!("CARGO_BIN_EXE_redislease"))
    };
    let redis = options.start_redis()?;
    let cluster = ControlPlane::start(Components::Nodes(2))?;

    let run = |block| reader.run(block, &cluster, &[("PASSWORD", "correct")]).unwrap_or_else(|error| panic!("{error}"));
    // A second time, as for an upgrade.
    for _ in 0..2 {
        run(block("deploy/redislease.yaml |"));
    }
    cluster.kubectl(&["rollout", "status", "deployment/redislease-operator", "-n", SYSTEM, "--timeout=60s"])?;
    let path = format!("/apis/apps/v1/namespaces/{SYSTEM}/deployments/redislease-operator");
    let deployment = cluster.get(&path)?.unwrap_or_default();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], concat!("registry.example.com/redislease:", env!("CARGO_PKG_VERSION")));
    let named = |variable: &&Value| variable["name"] == "REDISLEASE_CLUSTER_NAME";
    let name = container["env"].as_array().into_iter().flatten().find(named);
    assert_eq!(name.map(|variable| &variable["value"]), Some(&"eu-west-1".into()));

    run(block("create secret generic redis-password"));
    let mut quorum = block("kind: RedisQuorum").replace("spec:", "spec:\n  maxLeaseDuration: 10s");
    for (server, name) in redis.iter().zip(["redis-a", "redis-b", "redis-c"]) {
        quorum = quorum.replace(&format!("{name}.redis:6379"), &server.address().to_string());
    }
    cluster.apply(&quorum)?;

    // The pods of the Deployment are simulated: this process has their service account.
    let installation = Installation::of_release(&options, cluster, redis)?;
    let operator = installation.start_operator("operator-0", &[])?;
    installation.deployment("shop", "billing", 2)?;
    let lease = installation.lease("shop", "billing", &serde_json::json!({}))?;
    lease.wait("a holder", Duration::from_mins(1), LeaseState::is_active)?;
    operator.stop().map(drop)
}
