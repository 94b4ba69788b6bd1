//! Each command in the pages for readers is run by a test or a script, or is in a list with the reason why not.

use std::collections::BTreeSet;
use std::fs;

use redislease_lab::{Block, read, repository};

/// A line or a span of code that begins with one of these is a command.
const TOOLS: &[&str] =
    &["kubectl", "helm", "redis-cli", "redislease", "make", "docker", "kind", "cargo", "skopeo", "chronyc", "curl"];

/// A test that runs the blocks `sh` of a page, or of each page in a folder.
const RUN_BY: &[(&str, &str, &str)] = &[
    ("docs/install.md", "tests/chart/docs.rs", "the_commands_of_the_page_on_installation_work"),
    ("docs/annotations.md", "tests/kube/docs.rs", "the_commands_of_the_page_on_annotations_work"),
    ("docs/troubleshooting.md", "tests/chart/pages.rs", "the_commands_of_the_pages_on_operation_work"),
    ("docs/redis-checklist.md", "tests/chart/pages.rs", "the_commands_of_the_pages_on_operation_work"),
    (RUNBOOKS, "tests/chart/pages.rs", "the_commands_of_the_pages_on_operation_work"),
    ("examples/README.md", "tests/kube/examples.rs", "the_manifests_work"),
];

/// The folder of the runbooks. Whole commands in their text are run too.
pub const RUNBOOKS: &str = "docs/runbooks";

/// Commands in the text of other pages, which `tests/chart/pages.rs` runs in the namespace `shop`.
pub const SPANS: &[&str] = &[
    "kubectl events --for redislease/LEASE",
    "kubectl explain redislease.spec",
    "kubectl explain redisquorum.spec",
    "kubectl wait rl/LEASE --for=condition=Active",
    "redislease --help",
    "redislease crds",
];

/// Commands that another file runs: the command, the file, and what it contains.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("cargo run -- crds --dir crds", "src/cli/crds.rs", "fn committed_crds_match_the_types()"),
    (
        "cargo run -p redislease-locker --example NAME -- URLS",
        "crates/locker/tests/locker/stories.rs",
        "\"../../examples/redislock.rs\"",
    ),
    ("cargo test --workspace --lib NAME", "hack/run-tests.sh", "--lib --bins"),
    (
        "helm install redislease charts/redislease --namespace redislease-system \
         --set devRedis.enabled=true,cluster.name=trial,image.repository=registry.example.com/redislease \
         --wait --timeout=5m",
        "tests/chart/docs.rs",
        "replacen(\"install\", \"template\", 1)",
    ),
    ("helm template", "crates/lab/src/helm.rs", "\"template\", RELEASE"),
    (
        "helm template redislease charts/redislease --namespace redislease-system --skip-tests --values my-values.yaml",
        "tests/chart/docs.rs",
        "starts_with(\"helm template\")",
    ),
    ("helm test", "crates/lab/examples/e2e/story.rs", "\"test\", RELEASE"),
    (
        "helm test redislease --namespace redislease-system --logs",
        "crates/lab/examples/e2e/story.rs",
        "\"test\", RELEASE, \"--namespace\", SYSTEM, \"--logs\"",
    ),
    (
        "kubectl --namespace redislease-system delete redisquorum default",
        "tests/chart/trial.rs",
        "\"delete\", \"redisquorum\", \"default\"",
    ),
    ("kubectl apply --server-side --filename crds", "crates/lab/src/control_plane/plane.rs", "\"--server-side\""),
    ("kubectl apply --server-side --filename -", "tests/chart/manifests.rs", "block(\"deploy/redislease.yaml |\")"),
    ("kubectl apply --server-side -f -", "tests/kube/cel.rs", "\"--server-side\", \"-f\", \"-\""),
    ("kubectl get redislease -n shop", "crates/lab/examples/demo/story.rs", "$ kubectl get redislease -n {NAMESPACE}"),
    ("kubectl redislease why LEASE", "tests/kube/why.rs", "\"redislease\", \"why\", \"billing\""),
    ("kubectl rollout restart", "crates/lab/examples/e2e/upkeep.rs", "\"rollout\", \"restart\""),
    ("redislease run", "tests/redis/command.rs", "\"run\""),
    (
        "redislease run --redis-file FILE --lease shop/report -- COMMAND",
        "crates/run/tests/run/options.rs",
        "--redis-file",
    ),
    (
        "redislease run --redis a=redis://127.0.0.1:7001,b=redis://127.0.0.1:7002,c=redis://127.0.0.1:7003 \
         --lease shop/report -- sh -c 'echo \"token $REDISLEASE_TOKEN\"'",
        "crates/run/tests/run/support.rs",
        "--redis",
    ),
    (
        "redislease run --redis-file /etc/redislease/servers --lease shop/importer --mode service -- /usr/local/bin/importer",
        "crates/run/tests/run/options.rs",
        "--redis-file",
    ),
    (
        "redislease run --redis-file /etc/redislease/quorum --beside-operator --longest-lease 60s --lease shop/importer \
         -- /usr/local/bin/importer",
        "crates/run/tests/run/options.rs",
        "--beside-operator",
    ),
    (
        "redislease handover billing -n shop --to cluster/eu-west-1",
        "tests/kube/handover.rs",
        "\"--to=cluster/elsewhere\"",
    ),
];

const A_KUBELET: &str = "needs a kubelet: the simulated pods of the tests run no container";
const DOCKER: &str = "needs Docker";
const A_REGISTRY: &str = "needs a registry";
const USAGE: &str = "the usage of a subcommand, generated from the flags";

/// Commands that no test and no script runs, with the reason.
const NOT_RUN: &[(&str, &str)] = &[
    (
        "cargo build --release --package redislease-run",
        "a release build; the tests run the debug build of the same program",
    ),
    ("cargo doc -p redislease-locker --open", "opens a browser; the documentation tests compile the examples"),
    ("cargo install --path .", "builds a release binary; the tests run the binary that they build"),
    ("cargo run -p redislease-lab --example lab", "leaves servers running until it is stopped"),
    ("chronyc tracking", "needs chrony on the machine of a Redis server"),
    (
        "for port in 7001 7002 7003; do redis-server --port $port --save '' --daemonize yes; done",
        "leaves servers running; the tests start theirs on free ports",
    ),
    ("docker build --build-arg VERSION=0.1.0 -t redislease:0.1.0 .", DOCKER),
    ("docker build --build-arg VERSION=0.1.0 -t registry.example.com/redislease:0.1.0 .", DOCKER),
    ("docker push registry.example.com/redislease:0.1.0", A_REGISTRY),
    (
        "export KUBEBUILDER_ASSETS=$(go run sigs.k8s.io/controller-runtime/tools/setup-envtest@release-0.24 use 1.36.x -p path)",
        "downloads the binaries of envtest",
    ),
    ("helm upgrade --install", "an option of Helm, and no whole command"),
    ("helm show values", "a command without its argument, the chart"),
    ("kind create cluster", DOCKER),
    ("kind load docker-image redislease:0.1.0", DOCKER),
    (
        "kubectl --namespace redislease-system exec deployment/redislease-operator -- /redislease why billing -n shop",
        A_KUBELET,
    ),
    ("kubectl delete --cascade=orphan", "an option of kubectl, and no whole command"),
    (
        "kubectl delete namespace shop",
        "removes what a reader made with another page; the test begins with an empty cluster",
    ),
    ("kubectl logs --previous", A_KUBELET),
    (
        "kubectl logs -n redislease-system -l app.kubernetes.io/name=redislease --tail=-1 | grep -E \"panicked|broke an invariant\"",
        A_KUBELET,
    ),
    ("kubectl logs -n redislease-system -l app.kubernetes.io/name=redislease --tail=100", A_KUBELET),
    ("kubectl logs -n redislease-system -l app.kubernetes.io/name=redislease --tail=200", A_KUBELET),
    ("kubectl port-forward -n redislease-system POD 8080 & sleep 3; curl -s localhost:8080/readyz; kill $!", A_KUBELET),
    ("helm --wait", "an option of Helm, and no whole command"),
    ("kubectl drain", "a command without its argument; tests/kube/gate.rs evicts the pod"),
    ("kubectl exec", "a command without its argument"),
    (
        "kubectl rollout undo",
        "a command without its argument; the tests of consent in crates/plan change the annotations as it does",
    ),
    ("kubectl set image", "a command without its argument"),
    ("redislease run … &", "a placeholder; crates/run/tests/run/terminal.rs runs one in the background"),
    ("kubectl wait redislease/NAME --for=condition=Active", "a placeholder; the command of the README is run"),
    ("kubectl rollout status", "a command without its argument; tests/kube/gate.rs shows that it does not end"),
    ("kubectl top pod -n redislease-system", "needs metrics-server"),
    ("cargo test --release -p redislease-locker many -- --nocapture", "a measurement that takes minutes"),
    ("redislease SUBCOMMAND --help", USAGE),
    ("redislease doctor [QUORUM]", USAGE),
    ("redislease handover NAME", USAGE),
    ("redislease operator", USAGE),
    ("redislease run -- COMMAND", USAGE),
    (
        "skopeo copy oci-archive:target/image/redislease-amd64.tar docker://registry.example.com/redislease:0.1.0",
        A_REGISTRY,
    ),
];

/// Whether a list says that this command is not run, or whether it is a command for developers.
pub fn is_not_run(command: &str) -> bool {
    is_of_developers(command) || NOT_RUN.iter().any(|(listed, _)| *listed == command)
}

/// Whether the command selects a target of the Makefile or one of the test programs. It must exist.
fn is_of_developers(command: &str) -> bool {
    command.starts_with("make ") || test_program(command).is_some()
}

/// The folder of the test program that a command selects, and the first filter of its tests.
fn test_program(command: &str) -> Option<(String, &str)> {
    let words: Vec<&str> = command.strip_prefix("cargo test ")?.split(' ').collect();
    let at = words.iter().position(|word| *word == "--test")?;
    let package = words.iter().position(|word| ["-p", "--package"].contains(word)).map(|at| words[at + 1]);
    let package = package.map_or(String::new(), |name| format!("crates/{}/", name.trim_start_matches("redislease-")));
    Some((format!("{package}tests/{}", words.get(at + 1)?), words.get(at + 2).copied().unwrap_or_default()))
}

/// Where a command stands in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a block that is marked as shell.
    Shell,
    /// In another block.
    Block,
    /// Between backquotes in the text.
    Span,
}

/// A command without its comment, and without continued lines.
#[derive(Clone, Debug)]
pub struct Command {
    pub place: Place,
    pub text: String,
}

impl Command {
    /// The commands of a page, those in blocks first.
    pub fn of(page: &str) -> Vec<Self> {
        let mut commands = Vec::new();
        for block in Block::of(page) {
            let place = if block.language == "sh" { Place::Shell } else { Place::Block };
            for line in block.text.replace("\\\n", " ").lines() {
                let text = without_comment(line.trim().trim_start_matches("$ "));
                let is_command = place == Place::Shell || begins_with_tool(&text);
                if is_command && !text.is_empty() {
                    commands.push(Self { place, text });
                }
            }
        }
        let text: String = page.split("\n```").step_by(2).collect();
        let spans = text.split('`').skip(1).step_by(2).map(without_comment);
        // One word is the name of a tool, of a label or of a prefix.
        let spans = spans.filter(|span| span.contains(' ') && begins_with_tool(span));
        commands.extend(spans.map(|text| Self { place: Place::Span, text }));
        commands
    }

    /// Whether a span can be run as it is. A shorter one is the name of a command.
    pub fn is_whole(&self) -> bool {
        self.text.split(' ').count() >= 5
    }
}

fn without_comment(line: &str) -> String {
    let line = if line.starts_with("# ") { "" } else { line.split(" # ").next().unwrap_or_default() };
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn begins_with_tool(text: &str) -> bool {
    text.split(' ').next().is_some_and(|word| TOOLS.contains(&word))
}

/// The pages for readers, with their text.
fn pages() -> Vec<(String, String)> {
    let mut pages: Vec<String> =
        ["README.md", "CONTRIBUTING.md", "charts/redislease/README.md", "examples/README.md"].map(str::to_owned).into();
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(repository().join(&folder)).expect("a folder of pages").flatten() {
            let path = format!("{folder}/{}", entry.file_name().display());
            if entry.path().is_dir() {
                folders.push(path);
            } else if entry.path().extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages.iter().map(|page| (page.clone(), read(page))).collect()
}

/// The words of `name` are the first words of `command`.
fn names(name: &str, command: &str) -> bool {
    command.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

#[test]
fn each_command_of_the_pages_is_run_or_listed() {
    let pages = pages();
    let is_run_page =
        |page: &str| RUN_BY.iter().any(|(path, ..)| page == *path || page.starts_with(&format!("{path}/")));
    let mut run: BTreeSet<String> = SPANS.iter().map(|&span| span.to_owned()).collect();
    let mut others = Vec::new();
    for (page, text) in &pages {
        for command in Command::of(text) {
            let in_runbook = page.starts_with(RUNBOOKS) && command.place == Place::Span && command.is_whole();
            let is_run = (command.place == Place::Shell && is_run_page(page)) || in_runbook;
            if is_run && !is_not_run(&command.text) {
                run.insert(command.text);
            } else {
                others.push((page, command.text));
            }
        }
    }
    let elsewhere = |command: &str| ELSEWHERE.iter().any(|(listed, ..)| *listed == command);
    let is_run = |command: &str| run.iter().any(|other| names(command, other));
    let unknown: Vec<_> = others
        .iter()
        .filter(|(_, command)| !is_not_run(command) && !elsewhere(command) && !is_run(command))
        .map(|(page, command)| format!("{page}: {command}"))
        .collect();
    assert!(unknown.is_empty(), "no test runs these commands, and no list names them: {unknown:#?}");
    assert!(run.len() > 70 && others.len() > 100, "{} commands are run, {} are others", run.len(), others.len());

    let listed = NOT_RUN.iter().map(|(command, _)| *command).chain(ELSEWHERE.iter().map(|(command, ..)| *command));
    let in_pages = |command: &str| others.iter().any(|(_, other)| other == command);
    let unused: Vec<&str> = listed.filter(|command| !in_pages(command)).collect();
    assert!(unused.is_empty(), "no page contains these commands: {unused:#?}");
    let spans: Vec<&&str> = SPANS.iter().filter(|span| !in_pages(span)).collect();
    assert!(spans.is_empty(), "no page contains these commands: {spans:#?}");
}

#[test]
fn the_tests_and_scripts_that_run_commands_exist() {
    for (page, file, test) in RUN_BY {
        let source = read(file);
        assert!(source.contains(&format!("#[test]\nfn {test}(")), "{file} has no test {test}");
        let names_it = source.contains(&format!("\"{page}\"")) || (*page == RUNBOOKS && source.contains("RUNBOOKS"));
        assert!(names_it, "{file} does not read {page}");
    }
    for (command, file, text) in ELSEWHERE {
        assert!(read(file).contains(text), "`{command}`: {file} does not contain {text:?}");
    }
    let makefile = read("Makefile");
    for (page, text) in pages() {
        for Command { text: command, .. } in Command::of(&text) {
            if let Some(target) = command.strip_prefix("make ") {
                let target = target.split(' ').next().unwrap_or_default();
                assert!(makefile.contains(&format!("\n{target}:")), "{page}: the Makefile has no target {target}");
            }
            if let Some((folder, filter)) = test_program(&command) {
                let is_file = |path: &str| repository().join(&folder).join(path).is_file();
                assert!(is_file("main.rs"), "{page}: there are no tests {folder}");
                let module = filter.strip_suffix("::").unwrap_or("main");
                assert!(is_file(&format!("{module}.rs")), "{page}: {folder} has no tests {filter}");
            }
        }
    }
}

#[test]
fn a_command_without_a_test_is_found() {
    let page =
        "a `redislease` and `helm list -n shop`\n```text\nkubectl get \\\n  rl # all\nrest\n```\n```sh\ndate -u\n```\n";
    let found: Vec<(Place, String)> = Command::of(page).into_iter().map(|one| (one.place, one.text)).collect();
    let expected = [
        (Place::Block, "kubectl get rl".to_owned()),
        (Place::Shell, "date -u".to_owned()),
        (Place::Span, "helm list -n shop".to_owned()),
    ];
    assert_eq!(found, expected);
    assert!(names("kubectl get", "kubectl get rl") && !names("kubectl get r", "kubectl get rl"));
}
