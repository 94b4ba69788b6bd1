//! The manifests and the readers in examples/.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use redislease_lab::{Block, Installation, Lease, LeaseState, Reader, Result, repository};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Cluster, FIRST_ELECTION, SOON, options};

fn example(file: &str) -> PathBuf {
    repository().join("examples").join(file)
}

/// A folder in the shape of a downward API volume: `role` -> `..data/role`, `..data` -> `..VERSION`.
struct Volume {
    folder: TempDir,
}

impl Volume {
    fn new(role: &str, token: &str) -> Self {
        let volume = Self { folder: tempfile::tempdir().expect("a folder") };
        volume.write("..1", role, token);
        for file in ["role", "token"] {
            symlink(format!("..data/{file}"), volume.path().join(file)).expect("a link");
        }
        volume
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Replaces the version as the kubelet does: a new folder, a new link that is renamed, then the old folder is removed.
    fn write(&self, version: &str, role: &str, token: &str) {
        let (data, next) = (self.path().join("..data"), self.path().join("..data_tmp"));
        let old = fs::read_link(&data).ok();
        let folder = self.path().join(version);
        fs::create_dir(&folder).expect("a folder");
        fs::write(folder.join("role"), role).expect("a file");
        fs::write(folder.join("token"), token).expect("a file");
        symlink(version, &next).expect("a link");
        fs::rename(&next, &data).expect("the link is replaced");
        if let Some(old) = old {
            fs::remove_dir_all(self.path().join(old)).expect("the old version is removed");
        }
    }
}

/// The command of each reader. The compiled ones are built once.
static READERS: LazyLock<Vec<(&str, Vec<String>)>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let text = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
    let [go, rust] = ["go-reader", "rust-reader"].map(|name| text(&folder.join(name)));
    let source = |name: &str| text(&example("readers").join(name));
    for mut build in [
        with(Command::new("go"), &["build", "-o", &go, &source("reader.go")]),
        with(Command::new("rustc"), &["--edition=2024", "-o", &rust, &source("reader.rs")]),
    ] {
        let output = build.env("GOFLAGS", "-mod=mod").output().unwrap_or_else(|error| panic!("{build:?}: {error}"));
        assert!(output.status.success(), "{build:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    vec![
        ("shell", vec!["sh".to_owned(), source("reader.sh")]),
        ("Python", vec!["python3".to_owned(), source("reader.py")]),
        ("Go", vec![go]),
        ("Rust", vec![rust]),
    ]
});

fn with(mut command: Command, args: &[&str]) -> Command {
    command.args(args);
    command
}

/// What a reader prints, and its exit code.
fn read(reader: &[String], volume: &Path) -> (String, Option<i32>) {
    let output = Command::new(&reader[0]).args(&reader[1..]).arg(volume).output();
    let output = output.unwrap_or_else(|error| panic!("{reader:?}: {error}"));
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

#[test]
fn the_readers_print_the_token_of_an_active_pod_only() {
    let folder = tempfile::tempdir().expect("a folder");
    for (language, reader) in READERS.iter() {
        let not_active = (String::new(), Some(1));
        let active = |token: &str| (format!("{token}\n"), Some(0));
        // The operator has not written the label yet.
        let volume = Volume::new("", "");
        assert_eq!(read(reader, volume.path()), not_active, "{language}");
        volume.write("..2", "standby", "1795238400000042");
        assert_eq!(read(reader, volume.path()), not_active, "{language}");
        volume.write("..3", "active", "1795238400000043");
        assert_eq!(read(reader, volume.path()), active("1795238400000043"), "{language}");
        volume.write("..4", "standby", "1795238400000044");
        assert_eq!(read(reader, volume.path()), not_active, "{language}");
        // An active pod without a token is not active for a store.
        volume.write("..5", "active", "");
        assert_eq!(read(reader, volume.path()), not_active, "{language}");
        assert_eq!(read(reader, folder.path()), not_active, "{language}: no volume");
    }
}

#[test]
fn a_reader_never_mixes_two_versions() {
    let volume = Volume::new("standby", "0");
    // Every odd version is active with its number as the token; the even ones are standby.
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for version in 2_u32.. {
                let role = if version.is_multiple_of(2) { "standby" } else { "active" };
                volume.write(&format!("..{version}"), role, &version.to_string());
                if done.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
                // Slow enough for a process to start and read, fast enough to change between its two reads.
                std::thread::sleep(std::time::Duration::from_millis(30));
            }
        });
        let each = READERS.iter().flat_map(|reader| std::iter::repeat_n(reader, 25));
        let found: Vec<_> = each.map(|(language, reader)| (language, read(reader, volume.path()))).collect();
        // Before the assertions: a failed one would wait for the thread.
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        let mut active = 0;
        for (language, (printed, code)) in found {
            let token: Option<u32> = printed.trim().parse().ok();
            active += usize::from(token.is_some());
            assert!(
                matches!((token, code), (Some(token), Some(0)) if !token.is_multiple_of(2))
                    || (printed.is_empty() && code == Some(1)),
                "{language}: {printed:?} {code:?}"
            );
        }
        assert!(active > 0, "no reader printed a token");
    });
}

/// Runs a statement with the tokens 7, 9 and 8, each with ten times the token as the balance. Prints the balance after each.
const STORE: &str = r#"
import sqlite3, sys
store = sqlite3.connect(":memory:")
store.execute("CREATE TABLE account (id INTEGER, balance INTEGER, fence INTEGER)")
store.executemany("INSERT INTO account VALUES (?, 0, 0)", [(1,), (2,)])
for token in (7, 9, 8):
    changed = store.execute(sys.argv[1], {"id": 1, "token": token, "balance": token * 10}).rowcount
    print(changed, *store.execute("SELECT balance, fence FROM account ORDER BY id").fetchall())
"#;

#[test]
fn the_statement_of_the_pages_refuses_an_older_token() {
    for file in ["README.md", "examples/README.md"] {
        let page = redislease_lab::read(file);
        let blocks = Block::of(&page);
        let statement = blocks.iter().find(|block| block.language == "sql").unwrap_or_else(|| panic!("{file}: no SQL"));
        let output = Command::new("python3").args(["-c", STORE, statement.text]).output().expect("python3 runs");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!(printed, "1 (70, 7) (0, 0)\n1 (90, 9) (0, 0)\n0 (90, 9) (0, 0)\n", "{file}: {output:?}");
    }
}

/// Applies an example in a namespace.
fn apply(installation: &Installation, namespace: &str, file: &str) -> Result<()> {
    let cluster = installation.control_plane();
    let path = example(file);
    let path = path.to_str().expect("a path in UTF-8");
    cluster.kubectl(&["apply", "--namespace", namespace, "--filename", path]).map(drop)
}

fn get(installation: &Installation, path: &str) -> std::result::Result<Value, String> {
    let found = installation.control_plane().get(path)?;
    found.ok_or_else(|| format!("{path} does not exist"))
}

/// The addresses of the ready endpoints of a Service.
fn endpoints(installation: &Installation, namespace: &str, service: &str) -> std::result::Result<Vec<String>, String> {
    let slices = get(installation, &format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"))?;
    let of_service = |slice: &&Value| slice["metadata"]["labels"]["kubernetes.io/service-name"] == service;
    let slices = slices["items"].as_array().into_iter().flatten().filter(of_service);
    let endpoints = slices.flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
    let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true);
    let pods = ready.filter_map(|endpoint| endpoint["targetRef"]["name"].as_str().map(str::to_owned));
    Ok(pods.collect())
}

/// Runs the commands of the page, and applies the other examples, each in a namespace of its own.
fn apply_all(installation: &Installation) -> Result<()> {
    let cluster = installation.control_plane();
    for namespace in ["shop", "service", "scheduling-gate", "one-cluster", "cronjob"] {
        cluster.kubectl(&["create", "namespace", namespace])?;
    }
    let (page, reader) = (redislease_lab::read("examples/README.md"), Reader::new()?);
    symlink(example(""), reader.folder().join("examples")).expect("a link to the examples");
    let commands: Vec<&str> =
        Block::of(&page).iter().filter(|block| block.language == "sh").map(|block| block.text).collect();
    assert!(commands.iter().any(|block| block.contains("downward-api.yaml")), "{commands:?}");
    for block in commands {
        reader.run(block, cluster, &[]).unwrap_or_else(|error| panic!("{error}"));
    }
    apply(installation, "service", "service.yaml")?;
    apply(installation, "scheduling-gate", "scheduling-gate.yaml")?;
    apply(installation, "one-cluster", "one-cluster.yaml")?;
    apply(installation, "cronjob", "cronjob.yaml")?;
    cluster.kubectl(&["create", "job", "run", "--from=cronjob/report", "--namespace=cronjob"]).map(drop)
}

/// Waits for the first holder of the lease of an example.
fn first_holder<'a>(installation: &'a Installation, namespace: &str, name: &str) -> Result<(Lease<'a>, LeaseState)> {
    let lease = installation.find_lease(namespace, name);
    let held = lease.wait("active", FIRST_ELECTION * 3, LeaseState::is_active)?;
    Ok((lease, held))
}

/// The holder has the files `role` and `token` in its volume, with the lease's label and annotation.
fn has_a_volume(installation: &Installation, namespace: &str, lease: &str, holder: &str) {
    let pod = get(installation, &format!("/api/v1/namespaces/{namespace}/pods/{holder}")).expect("the pod is read");
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let items: Vec<&Value> =
        volumes.flat_map(|volume| volume["downwardAPI"]["items"].as_array().into_iter().flatten()).collect();
    let fields = items.iter().map(|item| (item["path"].as_str(), item["fieldRef"]["fieldPath"].as_str()));
    let role = format!("metadata.labels['lease.redislease.io/{lease}']");
    let token = format!("metadata.annotations['token.redislease.io/{lease}']");
    assert_eq!(
        fields.collect::<Vec<_>>(),
        [(Some("role"), Some(role.as_str())), (Some("token"), Some(token.as_str()))],
        "the names of the files and the keys"
    );
}

/// Waits until `check` accepts the holder of the lease `billing`; then deletes that pod, and does the same with the next holder.
fn each_holder(
    installation: &Installation,
    namespace: &str,
    what: &str,
    check: impl Fn(&str) -> std::result::Result<(), String>,
) -> Result<()> {
    let (lease, mut held) = first_holder(installation, namespace, "billing")?;
    for _ in 0..2 {
        let holder = held.holder().unwrap_or_default().to_owned();
        installation
            .wait_for(what, SOON * 2, || check(&holder).map_err(|found| format!("{found}, the holder is {holder}")))?;
        installation.control_plane().kubectl(&["delete", "pod", &holder, "--namespace", namespace])?;
        held = lease.wait("another holder", SOON * 2, |now| now.is_active() && now.token() > held.token())?;
    }
    Ok(())
}

#[test]
fn the_manifests_work() -> Result<()> {
    let mut options = options();
    // The leases of the examples have the default duration of 30 s.
    options.quorum = serde_json::json!({"maxLeaseDuration": "30s"});
    options.allow_scheduling_gate = true;
    options.allow_scale = true;
    let Cluster { operator, installation } = Cluster::with_own_redis(&options)?;
    apply_all(&installation)?;

    // The pods have what the volume shows.
    let (lease, held) = first_holder(&installation, "shop", "billing")?;
    lease.wait_for_roles(&held, 3, SOON)?;
    has_a_volume(&installation, "shop", "billing", held.holder().unwrap_or_default());
    let (_, run) = first_holder(&installation, "cronjob", "report")?;
    assert!(run.holder().is_some_and(|pod| pod.starts_with("run-")), "{run}");
    has_a_volume(&installation, "cronjob", "report", run.holder().unwrap_or_default());

    each_holder(&installation, "scheduling-gate", "only the holder is scheduled", |holder| {
        let pods = get(&installation, "/api/v1/namespaces/scheduling-gate/pods")?;
        let pods = pods["items"].as_array().into_iter().flatten();
        let pods: Vec<_> = pods.map(|pod| (&pod["metadata"]["name"], pod["spec"]["nodeName"].is_string())).collect();
        let right = pods.iter().all(|(name, is_scheduled)| (**name == holder) == *is_scheduled);
        if pods.len() == 3 && right { Ok(()) } else { Err(format!("{pods:?}")) }
    })?;

    // The Deployment runs in the cluster that holds the lease.
    let (_, held) = first_holder(&installation, "one-cluster", "billing")?;
    assert_eq!(held.holder(), Some("billing"), "the Deployment");
    installation.wait_for("the Deployment has its replicas", SOON * 2, || {
        let workload = get(&installation, "/apis/apps/v1/namespaces/one-cluster/deployments/billing")?;
        let role = &workload["metadata"]["labels"]["lease.redislease.io/billing"];
        let replicas = &workload["spec"]["replicas"];
        if role == "active" && *replicas == 3 { Ok(()) } else { Err(format!("{role} with {replicas} replicas")) }
    })?;

    each_holder(&installation, "service", "the Service has the holder as its only endpoint", |holder| {
        let found = endpoints(&installation, "service", "billing-active")?;
        if found == [holder] { Ok(()) } else { Err(format!("{found:?}")) }
    })?;
    operator.stop().map(drop)
}
