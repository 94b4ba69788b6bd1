//! Starts three Redis servers and a control plane with three nodes for experiments: `cargo run -p redislease-lab
//! --example lab`.

use redislease_lab::{Components, ControlPlane, RedisServer, Result, keep_running};

fn main() -> Result<()> {
    let servers = [RedisServer::start()?, RedisServer::start()?, RedisServer::start()?];
    let control_plane = ControlPlane::start(Components::Nodes(3))?;
    for server in &servers {
        println!("redis-cli -p {}", server.address().port());
    }
    println!("export KUBECONFIG={}", control_plane.kubeconfig().display());
    println!("kill {}   # stops all of it, as Ctrl-C does", std::process::id());
    keep_running()
}
