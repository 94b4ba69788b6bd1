//! A trial (`devRedis`): real Redis servers start with the arguments of the chart, and the release gets other servers later.

use redislease_lab::{
    Components, ControlPlane, Helm, RELEASE, RedisOptions, RedisServer, Reply, Result, SYSTEM, nodes,
};
use serde_json::json;

use crate::objects::render;

#[test]
fn a_redis_server_starts_with_the_arguments_of_the_chart() -> Result<()> {
    let objects = render(&Helm::new()?, &["--set=devRedis.enabled=true"])?;
    let servers = objects.iter().find(|object| object.kind() == "StatefulSet").expect("there are servers");
    let container = &servers.pod().expect("they run pods")["containers"][0];
    assert_eq!(container["command"], json!(["redis-server"]));
    let args = container["args"].as_array().into_iter().flatten().filter_map(|arg| arg.as_str().map(str::to_owned));
    // Here it listens on loopback only: the last address counts.
    let args = args.chain(["--bind", "127.0.0.1"].map(str::to_owned)).collect();
    let server = RedisServer::start_with(&RedisOptions { args, ..RedisOptions::default() })?;
    for (name, value) in
        [("maxmemory-policy", "noeviction"), ("save", ""), ("appendonly", "no"), ("protected-mode", "no")]
    {
        let Reply(found) = server.command(&["CONFIG", "GET", name])?;
        let found: Vec<String> = redis::from_redis_value(found).expect("a list of texts");
        assert_eq!(found, [name, value]);
    }
    Ok(())
}

#[test]
fn a_trial_gets_other_servers_after_its_quorum_is_deleted() -> Result<()> {
    let cluster = ControlPlane::start(Components::Controllers)?;
    cluster.kubectl(&["create", "namespace", SYSTEM])?;
    let helm = Helm::with_kubeconfig(cluster.kubeconfig())?;
    let chart = Helm::chart();
    helm.run(&["install", RELEASE, &chart, "--namespace", SYSTEM, "--set=devRedis.enabled=true,cluster.name=trial"])?;

    let addresses =
        ["127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003"].map(|address| address.parse().expect(address));
    let production = format!("--set-json=quorums=[{}]", json!({"name": "default", "nodes": nodes(addresses)}));
    let upgrade = ["upgrade", RELEASE, &chart, "--namespace", SYSTEM, "--set=cluster.name=eu-west-1", &production];
    let refused = helm.run(&upgrade).expect_err("the nodes are others").to_string();
    assert!(refused.contains("nodes cannot be added, removed or renamed"), "{refused}");

    cluster.kubectl(&["delete", "redisquorum", "default", "--namespace", SYSTEM])?;
    helm.run(&upgrade)?;
    let names = "--output=jsonpath={.spec.nodes[*].name}";
    let names = cluster.kubectl(&["get", "redisquorum", "default", "--namespace", SYSTEM, names])?;
    assert_eq!(names, "redis-0 redis-1 redis-2");
    let servers = cluster.kubectl(&["get", "statefulsets", "--namespace", SYSTEM, "--output=name"])?;
    assert_eq!(servers.trim(), "", "the servers of the trial are removed");
    Ok(())
}
