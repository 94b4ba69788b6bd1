//! Pods without a lease object: the first process of each container is `redislease run`, with the operator's Redis servers.

use std::time::{Duration, Instant, SystemTime};

use redislease_lab::{Block, node::Container, read};
use serde_json::{Value, json};

use crate::{
    setup::{NAMESPACE, OPERATOR_IMAGE, Outcome, PASSWORD, STOP_SECONDS, WORKLOAD_IMAGE},
    story::{SOON, Story},
};

const NAME: &str = "importer";
const PODS: [&str; 3] = ["importer-a", "importer-b", "importer-c"];
const RUN: &str = "/redislease run";
const GUARD: &str = "redislease run-guard";
const COMMAND: &str = "/tools/workload";
/// The exit code of a process that SIGKILL has ended, and that of `run` after a loss: docs/run.md.
const KILLED: u64 = 137;
const LOST: u64 = 76;

/// The pod whose command runs.
struct Holder {
    pod: String,
    command: Container,
    token: u64,
    /// When the command began, by the clock of the machine.
    began: SystemTime,
}

impl Story<'_> {
    pub fn run_is_the_first_process_of_pods(&mut self) -> Outcome {
        self.narrator.chapter("`redislease run` is the first process of three pods");
        self.installation.apply(&self.servers()?)?;
        let spec = self.pod_spec()?;
        for name in PODS {
            let metadata = json!({"name": name, "namespace": NAMESPACE, "labels": {"app": NAME}});
            self.installation
                .apply(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": &spec}))?;
        }
        let first = self.next_command()?;
        let held = format!("lease {NAMESPACE}/{NAME} is held by {}/", first.pod);
        for name in PODS.into_iter().filter(|name| *name != first.pod) {
            self.wait_until("the other pods wait for the lock", SOON, || self.printed(name, &held))?;
        }
        let log = self.printed(&first.pod, "isolation none")?;
        if log.contains("other users can read") {
            return Err(format!("Only the group of the pod can read the Secret: {log}").into());
        }
        // The others have tried since it began.
        let first = self.next_command()?;
        self.narrator.say(&format!("{} runs its command, token {}. The others wait for it.", first.pod, first.token));

        let (second, ended) = self.kill(&first, RUN, KILLED)?;
        let after =
            second.began.duration_since(ended).map_err(|_| "The next command began before the end of this one.")?;
        let after = format!("{:.1} s", after.as_secs_f32());
        self.narrator.say(&format!(
            "PID 1 of {} is killed (SIGKILL), and the kernel has ended its command with it. That of {} began {after} \
             later, when\nthe lock had expired: token {}.",
            first.pod, second.pod, second.token,
        ));
        self.figure("kill -9 of PID 1 to the command in the next pod", after);

        let (third, _) = self.kill(&second, GUARD, LOST)?;
        self.narrator.say(&format!(
            "The guard in {} is killed: its command has ended, and the container with code {LOST}. {} runs its command, \
             token {}.",
            second.pod, third.pod, third.token,
        ));

        let deleted = Instant::now();
        self.kubectl(&["delete", "pod", &third.pod, "--namespace", NAMESPACE, "--wait=false"])?;
        self.end_of(&third)?;
        if deleted.elapsed() < Duration::from_secs(STOP_SECONDS) {
            return Err("The command of a deleted pod did not finish its work.".into());
        }
        self.narrator.say(&format!("{} is deleted: its command gets SIGTERM and finishes its work.", third.pod));
        // Later steps count the objects that are left.
        let selector = format!("--selector=app={NAME}");
        self.kubectl(&["delete", "pods,secrets", &selector, "--namespace", NAMESPACE, "--timeout=120s"]).map(drop)
    }

    /// Kills a process of the holder's container. Waits until its command has ended and another one runs with a greater token, and
    /// compares the exit code of the container. Returns also when the end of the command was seen.
    fn kill(&self, holder: &Holder, process: &str, code: u64) -> Outcome<(Holder, SystemTime)> {
        let found = Container::find(&self.uid(&holder.pod)?, process)?;
        found.ok_or_else(|| format!("{} has no process {process}.", holder.pod))?.kill()?;
        let ended = self.end_of(holder)?;
        let next = self.next_command()?;
        if next.pod == holder.pod || next.token <= holder.token {
            return Err(format!("{} has token {} after {}.", next.pod, next.token, holder.token).into());
        }
        let now = self.wait_until("the container has ended", SOON, || {
            let pod = self.pod(&holder.pod).map_err(|error| error.to_string())?;
            let state = &pod["status"]["containerStatuses"][0]["state"];
            state["terminated"]["exitCode"].as_u64().ok_or_else(|| state.to_string())
        })?;
        if now != code {
            return Err(format!("The container of {} has exit code {now} instead of {code}.", holder.pod).into());
        }
        Ok((next, ended))
    }

    fn end_of(&self, holder: &Holder) -> Outcome<SystemTime> {
        self.wait_until("the command has ended", SOON, || {
            if holder.command.runs() { Err(format!("{} runs it", holder.pod)) } else { Ok(SystemTime::now()) }
        })
    }

    /// Waits until a pod runs its command. Checks that no other pod does.
    fn next_command(&self) -> Outcome<Holder> {
        let mut found = self.wait_until("a pod runs its command", SOON, || {
            let found = self.commands().map_err(|error| error.to_string())?;
            if found.is_empty() { Err("no pod runs it".to_owned()) } else { Ok(found) }
        })?;
        // One that has ended after it was found and before the next began is not beside it.
        found.retain(|(_, command)| command.runs());
        let pods: Vec<&str> = found.iter().map(|(pod, _)| *pod).collect();
        let (1, Some((pod, command))) = (pods.len(), found.pop()) else {
            return Err(format!("One pod should run its command, but these do: {pods:?}.").into());
        };
        let (token, began) = self.wait_until("the command has begun", SOON, || {
            let text = self.printed(pod, " started")?;
            begin(&text).ok_or(text)
        })?;
        Ok(Holder { pod: pod.to_owned(), command, token, began })
    }

    fn commands(&self) -> Outcome<Vec<(&'static str, Container)>> {
        let mut found = Vec::new();
        for name in PODS {
            found.extend(Container::find(&self.uid(name)?, COMMAND)?.map(|command| (name, command)));
        }
        Ok(found)
    }

    fn uid(&self, name: &str) -> Outcome<String> {
        Ok(self.pod(name)?["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
    }

    /// The log of a pod, if this text is in it.
    fn printed(&self, name: &str, text: &str) -> Result<String, String> {
        let log = self.kubectl(&["logs", name, "--namespace", NAMESPACE]).map_err(|error| error.to_string())?;
        if log.contains(text) { Ok(log) } else { Err(format!("{name} has not printed {text:?}: {log}")) }
    }

    /// The pods of docs/run.md, which run the command of this story once, with the servers of the operator.
    fn pod_spec(&self) -> Outcome<Value> {
        const OPTIONS: [&str; 7] = [
            "--tls-ca=/servers/ca.crt",
            "--tls-certificate=/servers/tls.crt",
            "--tls-key=/servers/tls.key",
            "--beside-operator",
            "--longest-lease=15s",
            "--ttl=15s",
            "--grace=5s",
        ];
        let page = read("docs/run.md");
        let block = Block::of(&page).into_iter().find(|block| block.language == "yaml");
        let block = block.ok_or("docs/run.md has no manifest.")?.text;
        let show = ["create", "--dry-run=client", "--filename=-", "--output=jsonpath={.spec.template.spec}"];
        let shown = self.installation.control_plane().kubectl_with_input(&show, block)?;
        let mut spec: Value = serde_json::from_str(&shown)?;
        spec["restartPolicy"] = "Never".into();
        // Longer than this program waits: what ends before it has ended by SIGTERM.
        spec["terminationGracePeriodSeconds"] = (2 * SOON.as_secs()).into();
        let tools = json!({"name": "tools", "image": {"reference": WORKLOAD_IMAGE}});
        spec["volumes"].as_array_mut().ok_or("no volumes")?.push(tools);
        let container = &mut spec["containers"][0];
        container["image"] = OPERATOR_IMAGE.into();
        container["env"] = json!([{"name": "STOP_SECONDS", "value": STOP_SECONDS.to_string()}]);
        container["args"] = json!([COMMAND]);
        let tools = json!({"name": "tools", "mountPath": "/tools"});
        container["volumeMounts"].as_array_mut().ok_or("no volumeMounts")?.push(tools);
        let command = container["command"].as_array_mut().ok_or("no command")?;
        command[0] = "/redislease".into();
        let mode = command.iter().position(|word| word == "--mode=service").ok_or("no service")?;
        command.splice(mode..=mode, OPTIONS.map(Value::from));
        Ok(spec)
    }

    /// What `run` needs to reach the operator's servers.
    fn servers(&self) -> Outcome<Value> {
        let client = self.authority.sign(&[NAME])?;
        let addresses = self.installation.redis().iter().filter_map(|server| server.tls_address());
        // The names are those of the RedisQuorum.
        let urls: Vec<String> = (0..)
            .zip(addresses)
            .map(|(index, address): (usize, _)| format!("redis-{index}=rediss://redislease:{PASSWORD}@{address}"))
            .collect();
        Ok(json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {"app": NAME}},
            "stringData": {
                "urls": urls.join("\n"), "ca.crt": self.authority.certificate(), "tls.crt": client.certificate, "tls.key": client.key,
            },
        }))
    }
}

/// The token and the time that a command has printed.
fn begin(log: &str) -> Option<(u64, SystemTime)> {
    let token = log.lines().find_map(|line| line.strip_prefix("token "))?;
    let seconds = log.lines().find_map(|line| line.strip_suffix(" started"))?;
    let began = SystemTime::UNIX_EPOCH + Duration::from_secs_f64(seconds.parse().ok()?);
    Some((token.parse().ok()?, began))
}
