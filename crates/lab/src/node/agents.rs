//! One real node: its namespaces, its containerd and its kubelet.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};

use super::{Sandbox, cgroups};
use crate::{Condition, ControlPlane, Error, Process, Result, command::output, tools::NodeTools};

/// The image of the process that holds a pod's network namespace.
pub(super) const PAUSE: &str = "docker.io/library/redislease-pause:1";
/// The address of the bridge, which is the gateway of the nodes.
pub(super) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);

/// Limit for the start of each process, also on a busy machine.
const START_WITHIN: Duration = Duration::from_mins(1);

/// A real node. Its kubelet and its containerd stop when it is dropped; its containers stop with the sandbox.
#[derive(Debug)]
pub struct Node {
    // Processes stop in this order.
    kubelet: Process,
    _containerd: Process,
    _namespaces: Process,
    name: String,
    ctr: PathBuf,
    socket: PathBuf,
}

impl Node {
    pub(super) fn start(
        sandbox: &Sandbox,
        tools: &NodeTools,
        control_plane: &ControlPlane,
        index: usize,
        name: &str,
    ) -> Result<Self> {
        let folder = sandbox.make_folder(name)?;
        let addresses = Addresses::of(index);
        let namespaces = start_namespaces(&folder, name)?;
        let pid = namespaces.pid().ok_or_else(|| Error::NotRunning { process: format!("namespaces of {name}") })?;
        addresses.connect(index, pid)?;
        let socket = folder.join("containerd.sock");
        let containerd = start_containerd(&folder, tools, pid, &addresses, &socket)?;
        cgroups::make_below(&sandbox.cgroup(), name)?;
        let settings = kubelet_settings(&socket, &format!("/{}/{name}", sandbox.cgroup()));
        let config = write(&folder, "kubelet.json", &settings.to_string())?;
        let kubelet = Process::new(format!("kubelet of {name}"), "nsenter", folder.join("kubelet.log"))
            .args(inside(pid))
            .arg(&tools.kubelet)
            .args([
                format!("--config={}", config.display()),
                format!("--kubeconfig={}", control_plane.kubelet_kubeconfig(name).display()),
                format!("--hostname-override={name}"),
                format!("--node-ip={}", addresses.node),
            ]);
        kubelet.start()?;
        let (name, ctr) = (name.to_owned(), tools.ctr.clone());
        Ok(Self { kubelet, _containerd: containerd, _namespaces: namespaces, name, ctr, socket })
    }

    /// Waits until the node is Ready.
    ///
    /// # Errors
    /// [`Error::Exited`] or [`Error::NotReady`] with the end of the kubelet's log.
    pub fn wait_ready(&self, control_plane: &ControlPlane) -> Result<()> {
        let path = format!("/api/v1/nodes/{}", self.name);
        self.kubelet.wait_until(START_WITHIN, || {
            let node = control_plane.get(&path)?.unwrap_or_default();
            match Condition::of(&node, "Ready") {
                Some(ready) if ready.status == "True" => Ok(()),
                Some(ready) => Err(format!("{ready:?}")),
                None => Err("the API server has no such node".to_owned()),
            }
        })
    }

    /// The name of its Node object.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process of the kubelet: to stop it and to start it again. Containers run on without it.
    pub fn kubelet(&self) -> &Process {
        &self.kubelet
    }

    pub(super) fn import(&self, archive: &Path, reference: &str) -> Result<()> {
        let (socket, archive) = (self.socket.display().to_string(), archive.display().to_string());
        let ctr = |args: &[&str]| output(&self.ctr, &[&["--address", &socket, "--namespace", "k8s.io"], args].concat());
        // An OCI archive can lack the registry in its reference; that of its index is set here.
        ctr(&["images", "import", "--local", "--snapshotter", SNAPSHOTTER, "--index-name", reference, &archive])
            .map(drop)
    }
}

/// The one that works on every file system. It copies the image for each container, and images are small here.
const SNAPSHOTTER: &str = "native";

/// The arguments of nsenter for the namespaces of a node.
fn inside(pid: u32) -> [String; 5] {
    ["--target".into(), pid.to_string(), "--mount".into(), "--net".into(), "--".into()]
}

/// The addresses of a node and of its pods.
struct Addresses {
    node: Ipv4Addr,
    /// The network of its pods.
    pods: String,
}

impl Addresses {
    fn of(index: usize) -> Self {
        let number = u8::try_from(index).unwrap_or(u8::MAX).min(99);
        Self { node: Ipv4Addr::new(10, 99, 0, 100 + number), pods: format!("10.244.{number}.0/24") }
    }

    /// Connects the network namespace of this process to the bridge.
    fn connect(&self, index: usize, pid: u32) -> Result<()> {
        let (port, pid) = (format!("node{index}"), pid.to_string());
        let ip = |args: &[&str]| output("ip", args);
        let ip_inside = |args: &[&str]| output("nsenter", &[&["--target", &pid, "--net", "--", "ip"], args].concat());
        let (node, gateway) = (self.node.to_string(), GATEWAY.to_string());
        ip(&["link", "add", "name", &port, "type", "veth", "peer", "name", "eth0", "netns", &pid])?;
        ip(&["link", "set", &port, "master", "nodes", "up"])?;
        ip_inside(&["address", "add", &format!("{node}/24"), "dev", "eth0"])?;
        ip_inside(&["link", "set", "eth0", "up"])?;
        ip_inside(&["route", "add", "default", "via", &gateway])?;
        ip(&["route", "add", &self.pods, "via", &node]).map(drop)
    }
}

fn start_namespaces(folder: &Path, name: &str) -> Result<Process> {
    let namespaces = Process::new(format!("namespaces of {name}"), "unshare", folder.join("namespaces.log"))
        .args(["--mount", "--propagation=private", "--net", "--", "/bin/sh", "-c", include_str!("namespace.sh")])
        .args(["namespace.sh".as_ref(), folder.as_os_str()]);
    namespaces.start()?;
    namespaces.wait_for_file(&folder.join("ready"), START_WITHIN)?;
    Ok(namespaces)
}

fn start_containerd(
    folder: &Path,
    tools: &NodeTools,
    pid: u32,
    addresses: &Addresses,
    socket: &Path,
) -> Result<Process> {
    let networks = folder.join("networks");
    fs::create_dir_all(&networks).map_err(Error::io(format!("make {}", networks.display())))?;
    write(&networks, "10-lab.conflist", &network(folder, addresses).to_string())?;
    let config = write(folder, "containerd.toml", &containerd_settings(folder, tools, &networks, socket))?;
    let containerd = Process::new("containerd", "nsenter", folder.join("containerd.log"))
        .args(inside(pid))
        .arg(&tools.containerd)
        .args(["--config".as_ref(), config.as_os_str()]);
    containerd.start()?;
    containerd.wait_until(START_WITHIN, || {
        let args = ["--address", &socket.display().to_string(), "version"];
        output(&tools.ctr, &args).map(drop).map_err(|error| error.to_string())
    })?;
    Ok(containerd)
}

/// How containerd connects pods: to the bridge `pods`, with addresses of the node.
fn network(folder: &Path, addresses: &Addresses) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "lab",
        "plugins": [{
            "type": "bridge",
            "bridge": "pods",
            "isGateway": true,
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "dataDir": folder.join("leases"),
                "ranges": [[{"subnet": addresses.pods}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    })
}

fn containerd_settings(folder: &Path, tools: &NodeTools, networks: &Path, socket: &Path) -> String {
    let folder_text = folder.display();
    format!(
        r#"version = 3
root = "{folder_text}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
  address = "{socket}"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "{SNAPSHOTTER}"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{PAUSE}"
[plugins.'io.containerd.cri.v1.runtime']
  # In a container, the processes of this machine can lack the right to lower it.
  restrict_oom_score_adj = true
  # Its profile would stay in the kernel of this machine.
  disable_apparmor = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{plugins}"]
    conf_dir = "{networks}"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = false
"#,
        socket = socket.display(),
        plugins = tools.plugins.display(),
        networks = networks.display(),
    )
}

fn kubelet_settings(containerd: &Path, cgroup: &str) -> Value {
    let free = "1%";
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        // Only the sandbox reaches it.
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": format!("unix://{}", containerd.display()),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "failCgroupV1": false,
        "failSwapOn": false,
        "healthzBindAddress": IpAddr::from(Ipv4Addr::LOCALHOST),
        // Pods have no DNS.
        "resolvConf": "",
        // With these two, the API server notices a stopped kubelet within seconds.
        "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": 8,
        // A machine with little free disk must not evict the pods of a test.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": free, "nodefs.inodesFree": free,
            "imagefs.available": free, "imagefs.inodesFree": free,
        },
    })
}

fn write(folder: &Path, name: &str, content: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    fs::write(&path, content).map_err(Error::io(format!("write {}", path.display())))?;
    Ok(path)
}
