//! Runs the commands of the runbooks, of docs/troubleshooting.md and of docs/redis-checklist.md on an installed chart.

use std::{fs, net::SocketAddr, os::unix::fs::symlink, time::Duration};

use redislease_lab::{
    Authority, Block, Components, ControlPlane, Installation, InstallationOptions, LeaseState, Reader, RedisOptions,
    RedisServer, RedisTls, Result, SYSTEM, read, repository,
};
use serde_json::json;

use crate::commands::{Command, Place, RUNBOOKS, SPANS, is_not_run};

const PASSWORD: &str = "correct";
/// Limit for a command. An event or a label can be a moment late.
const SOON: Duration = Duration::from_secs(30);
/// The quorum waits for 10 s before its nodes vote.
const FIRST_ELECTION: Duration = Duration::from_mins(1);

/// Puts the names of this installation in place of a page's words in capitals.
fn filled_in(command: &str, redis: SocketAddr) -> String {
    let (host, port) = (redis.ip().to_string(), redis.port().to_string());
    let words = [
        ("NAMESPACE_OF_REDIS", SYSTEM),
        ("NAMESPACE", "shop"),
        ("LEASE", "billing"),
        ("QUORUM", "default"),
        ("POD", "billing-0"),
        ("HOST", &host),
        ("PORT", &port),
    ];
    words.iter().fold(command.to_owned(), |command, (word, name)| command.replace(word, name))
}

/// The chart on three servers with a password and the ACL user of the checklist, one operator, and a held lease.
struct Site {
    reader: Reader,
    installation: Installation,
}

impl Site {
    fn install() -> Result<Self> {
        let options = InstallationOptions {
            password: Some(PASSWORD.to_owned()),
            quorum: json!({"existingSecret": "redis-password"}),
            ..InstallationOptions::new(env!("CARGO_BIN_EXE_redislease"))
        };
        let redis = options.start_redis()?;
        for server in &redis {
            server.create_user(PASSWORD, "redislease", &[])?;
        }
        let control_plane = ControlPlane::start(Components::Nodes(3))?;
        control_plane.kubectl(&["create", "namespace", SYSTEM])?;
        let password = format!("--from-literal=password={PASSWORD}");
        let system = format!("--namespace={SYSTEM}");
        control_plane.kubectl(&["create", "secret", "generic", "redis-password", &system, &password])?;
        let installation = Installation::install_chart(&options, control_plane, redis, &["--set=replicas=2"])?;

        let reader = Reader::new()?;
        for name in ["redislease", "kubectl-redislease"] {
            symlink(&options.binary, reader.folder().join("bin").join(name)).expect("a link to the binary");
        }
        Ok(Self { reader, installation })
    }

    /// Runs a command until it succeeds, and returns what it printed. A command that reads must find something.
    fn run(&self, command: &str) -> Result<String> {
        let variables = [("REDISCLI_AUTH", PASSWORD), ("REDISCLI_HISTFILE", "/dev/null")];
        self.installation.wait_for(command, SOON, || {
            let printed = self.reader.run(command, self.installation.control_plane(), &variables)?;
            // redis-cli ends with 0 although the server refused the command.
            let refused = ["No resources found", "NOAUTH", "NOPERM", "WRONGPASS", "ERR "];
            let found_nothing = printed.trim().is_empty() && !command.contains("SLOWLOG");
            if found_nothing || refused.iter().any(|text| printed.contains(text)) {
                return Err(format!("{command}\nprinted: {printed}"));
            }
            Ok(printed)
        })
    }

    /// Runs a command of a runbook.
    fn follow(&self, command: &str) -> Result<()> {
        if let Some(selected) = command.strip_prefix("kubectl logs ") {
            // The simulated pods have no log. The selector must find them.
            let selected = selected.split(" --tail").next().unwrap_or_default();
            return self.run(&format!("kubectl get pods {selected}")).map(drop);
        }
        if is_not_run(command) {
            return Ok(());
        }
        // The ACL user can run every command except one.
        let with_user = format!("-p {} --user redislease", self.redis().port());
        let command = filled_in(command, self.redis());
        let with_port = format!("-p {}", self.redis().port());
        let command = if command.contains("SLOWLOG") { command } else { command.replace(&with_port, &with_user) };
        self.run(&command).map(drop)
    }

    fn redis(&self) -> SocketAddr {
        self.installation.redis()[0].address()
    }

    /// A StatefulSet and its lease: the pages name the pods billing-0 and billing-2.
    fn hold_a_lease(&self) -> Result<LeaseState> {
        self.installation.workload("StatefulSet", "shop", "billing", &json!({"spec": {"replicas": 3}}))?;
        self.run("kubectl rollout status statefulset/billing -n shop --timeout=60s")?;
        // A first term of another pod: the history has an entry.
        self.run("kubectl annotate pod billing-1 -n shop redislease.io/priority=1")?;
        let of =
            json!({"candidates": {"workloadRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "billing"}}});
        let lease = self.installation.lease("shop", "billing", &of)?;
        lease.wait("billing-1 holds the lease", FIRST_ELECTION, |now| now.holder() == Some("billing-1"))?;
        self.run("kubectl delete pod billing-1 -n shop")?;
        lease.wait("billing-0 holds the lease", FIRST_ELECTION, |now| {
            now.is_active() && now.holder() == Some("billing-0")
        })
    }

    fn blocks_of_troubleshooting(&self) -> Result<()> {
        let page = read("docs/troubleshooting.md");
        let mut moved = 0;
        for block in Block::of(&page).iter().filter(|block| block.language == "sh") {
            if block.text.contains("redis-cli") {
                self.connect_as_the_page_says(block.text)?;
                continue;
            }
            for command in Command::of(&format!("\n```sh\n{}\n```", block.text)) {
                self.follow(&command.text)?;
                moved +=
                    usize::from(["delete pod", "redislease handover"].iter().any(|way| command.text.contains(way)));
            }
        }
        assert_eq!(moved, 2, "the page says how to move a lease to billing-2, and then to billing-1");
        let lease = self.installation.find_lease("shop", "billing");
        lease
            .wait("billing-1 holds the lease", SOON, |now| now.is_active() && now.holder() == Some("billing-1"))
            .map(drop)
    }

    /// The password comes from the Secret. The last line connects to a server with TLS.
    fn connect_as_the_page_says(&self, block: &str) -> Result<()> {
        let authority = Authority::new("redis")?;
        let tls = RedisTls { identity: authority.sign(&["127.0.0.1"])?, client_ca: Some(authority.certificate()) };
        let server = RedisServer::start_with(&RedisOptions {
            password: Some(PASSWORD.to_owned()),
            tls: Some(tls),
            ..RedisOptions::default()
        })?;
        let client = authority.sign(&["client"])?;
        let files = [("ca.crt", authority.certificate()), ("tls.crt", client.certificate), ("tls.key", client.key)];
        for (file, text) in files {
            fs::write(self.reader.folder().join(file), text).expect("a file");
        }
        let with_tls = server.tls_address().expect("it listens with TLS");
        let address = |line: &str| if line.contains("--tls") { with_tls } else { self.redis() };
        let lines: Vec<String> = block.lines().map(|line| filled_in(line, address(line))).collect();
        let run = format!("unset REDISCLI_AUTH\n{}", lines.join("\n"));
        let printed = self.run(&run)?;
        assert_eq!(printed.matches("PONG").count(), 3, "{printed}");
        Ok(())
    }

    /// All blocks first: commands in the text stop the operator or suspend the lease.
    fn runbooks(&self) -> Result<()> {
        let folder = fs::read_dir(repository().join(RUNBOOKS)).expect("the runbooks").flatten();
        let mut pages: Vec<String> =
            folder.map(|entry| format!("{RUNBOOKS}/{}", entry.file_name().display())).collect();
        pages.sort();
        assert!(pages.len() >= 14, "{pages:?}");
        let commands: Vec<Command> = pages.iter().flat_map(|page| Command::of(&read(page))).collect();
        let (blocks, text): (Vec<_>, Vec<_>) = commands.iter().partition(|command| command.place != Place::Span);
        assert!(blocks.len() >= 45, "{} commands", blocks.len());
        for command in blocks.iter().chain(text.iter().filter(|command| command.is_whole())) {
            self.follow(&command.text)?;
        }
        let lease = self.installation.find_lease("shop", "billing");
        lease.wait("suspended, as a runbook says", SOON, |now| now.holder().is_none()).map(drop)
    }
}

#[test]
fn the_commands_of_the_pages_on_operation_work() -> Result<()> {
    let site = Site::install()?;
    let operator = site.installation.start_operator("operator-0", &[])?;
    site.hold_a_lease()?;
    let doctor = Command::of(&read("docs/redis-checklist.md"));
    for command in doctor.iter().filter(|command| command.place == Place::Shell) {
        site.follow(&command.text)?;
    }
    for span in SPANS {
        let namespace = if span.starts_with("kubectl") { " --namespace=shop" } else { "" };
        site.follow(&format!("{span}{namespace}"))?;
    }
    site.blocks_of_troubleshooting()?;
    site.runbooks()?;
    operator.stop().map(drop)
}
