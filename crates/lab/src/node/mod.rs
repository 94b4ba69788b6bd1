//! Real Kubernetes nodes on this machine: a kubelet and containerd each, which run real containers.
//!
//! Everything runs inside a [`Sandbox`]. In it a [`Cluster`] is a control plane and its nodes. Each node has its own
//! network, and a bridge joins the nodes, the API server and the Redis servers. There is no kube-proxy and no DNS: the API
//! server has the address of the Service `kubernetes`, and pods reach Redis by address.

mod agents;
mod cgroups;
mod containers;
mod image;
mod sandbox;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    process::Command,
    time::Duration,
};

use self::agents::{GATEWAY, PAUSE};
pub use self::{
    agents::Node,
    containers::{Container, Exit},
    image::{Image, Program},
    sandbox::{Entered, Sandbox},
};
use crate::{ControlPlane, Result, command, control_plane::RealNodes, tools::NodeTools};

/// The first address of the service network. The Service `kubernetes` has it.
const API_SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1)), 443);
/// A control plane with real nodes.
#[derive(Debug)]
pub struct Cluster {
    // Kubelets stop before the API server.
    nodes: Vec<Node>,
    control_plane: ControlPlane,
}

impl Cluster {
    /// How long a node can be silent before it is not Ready. The default of Kubernetes is 50 s.
    pub const SILENCE: Duration = Duration::from_secs(12);

    /// Starts a control plane and nodes `node-0`, `node-1`, ..., and waits until all nodes are Ready.
    ///
    /// # Errors
    /// [`Error::MissingTool`](crate::Error::MissingTool) before `make e2e` has built the tools, or the error of the
    /// part that did not start, with the end of its log.
    pub fn start(sandbox: &Sandbox, nodes: usize) -> Result<Self> {
        let tools = NodeTools::locate()?;
        network()?;
        let names = (0..nodes).map(|index| format!("node-{index}")).collect();
        let plan = RealNodes { api_server: API_SERVER, names, silence: Self::SILENCE };
        let control_plane = ControlPlane::start_for(&plan)?;
        let pause = Image::new(PAUSE, Program::Source("pause")).pack(sandbox)?;
        let start = |(index, name): (usize, &String)| {
            let node = Node::start(sandbox, &tools, &control_plane, index, name)?;
            node.import(&pause, PAUSE)?;
            Ok(node)
        };
        let nodes = plan.names.iter().enumerate().map(start).collect::<Result<Vec<_>>>()?;
        for node in &nodes {
            node.wait_ready(&control_plane)?;
        }
        Ok(Self { nodes, control_plane })
    }

    /// The control plane.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// Separates the nodes from the control plane, for [`Installation`](crate::Installation). Drop the nodes first.
    pub fn split(self) -> (Vec<Node>, ControlPlane) {
        (self.nodes, self.control_plane)
    }

    /// Copies the archive of an image to all nodes, under this reference (registry and tag included).
    ///
    /// # Errors
    /// [`Error::Command`](crate::Error::Command) with containerd's message.
    pub fn import(&self, archive: &Path, reference: &str) -> Result<()> {
        self.nodes.iter().try_for_each(|node| node.import(archive, reference))
    }

    /// The addresses for servers outside of the nodes, which pods can reach.
    pub const SERVERS: [IpAddr; 5] = [server(2), server(3), server(4), server(5), server(6)];
}

const fn server(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 99, 0, number))
}

/// Makes the bridge that joins the nodes and the servers.
fn network() -> Result<()> {
    let servers = Cluster::SERVERS.map(|address| address.to_string());
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", include_str!("network.sh"), "network.sh", &API_SERVER.ip().to_string(), &GATEWAY.to_string()]);
    shell.args(servers);
    command::run(&mut shell, || "ip link add nodes type bridge".to_owned(), "").map(drop)
}
