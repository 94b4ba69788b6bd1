//! The Redis servers of a trial (`devRedis`): real ones start with the arguments of the chart.

use redislease_lab::{Helm, RedisOptions, RedisServer, Reply, Result};
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
