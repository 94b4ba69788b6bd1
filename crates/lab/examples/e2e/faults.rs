//! What happens to the holder: its container is killed, its pod is deleted, its kubelet is stopped.

use std::time::{Duration, Instant};

use redislease_lab::{LeaseState, WatchEvent, node::Cluster};

use crate::{
    setup::STOP_SECONDS,
    story::{LEASE_DURATION, NAMESPACE, Outcome, SOON, Story, WORKLOAD, holder, same_term, token},
};

impl Story<'_> {
    pub fn container_is_killed(&mut self) -> Outcome {
        self.narrator.chapter("kill -9 of the holder's container");
        let (held, began) = (self.held()?, Instant::now());
        let before = self.lease().state()?;
        let name = holder(&before);
        let pod = self.pod(&name)?;
        let restarts = restarts(&pod);
        let container = self.container(&pod)?;
        container.kill()?;
        self.narrator.say(&format!("process {} of {name} is killed", container.pid()));
        self.wait_until("the kubelet has started the container again", SOON, || {
            let pod = self.pod(&name).map_err(|error| error.to_string())?;
            let now = &pod["status"]["containerStatuses"][0];
            let runs = now["ready"] == true && now["restartCount"].as_u64() > Some(restarts);
            if runs { Ok(()) } else { Err(now.to_string()) }
        })?;
        self.narrator.say(&format!(
            "The kubelet runs a new container in the same pod {:.1} s later. A container that stopped is no proof that\n\
             the pod has stopped: the lease stays with the pod, token {}.",
            began.elapsed().as_secs_f32(),
            token(&before),
        ));
        self.none_moved(&held, began)
    }

    pub fn holders_pod_is_deleted(&mut self) -> Outcome {
        self.narrator.chapter("The holder's pod is deleted");
        let before = self.lease().state()?;
        let name = holder(&before);
        let container = self.container(&self.pod(&name)?)?;
        // Only events of after this moment count.
        self.watch.so_far();
        let deleted = Instant::now();
        let exit = container.exit();
        self.kubectl(&["delete", "pod", &name, "--namespace", NAMESPACE, "--wait=false"])?;
        self.narrator
            .say(&format!("{name} gets SIGTERM and finishes its work for {STOP_SECONDS} s. It keeps the lease."));
        let next = self.watch.wait("another holder", SOON, |event| is_next(event, &before))?;
        let exit = exit.join().map_err(|_| "The thread that waits for the process has panicked.")??;
        let after =
            next.at.checked_duration_since(exit.at).ok_or("The next holder was shown before the process had ended.")?;
        self.narrator.say(&format!(
            "its process ended {:.2} s after the request, and the next holder was shown {:.2} s after that",
            exit.at.duration_since(deleted).as_secs_f32(),
            after.as_secs_f32(),
        ));
        let now = self.lease().state()?;
        if now.token() <= before.token() {
            return Err(format!("The token did not grow: {} and then {}.", token(&before), token(&now)).into());
        }
        self.narrator.say(&format!("{} holds it, fencing token {} (greater)", holder(&now), token(&now)));
        let deployment = format!("deployment/{WORKLOAD}");
        self.kubectl(&["rollout", "status", &deployment, "--namespace", NAMESPACE, "--timeout=60s"])?;
        self.see_roles(&now)
    }

    pub fn kubelet_is_stopped(&mut self) -> Outcome {
        self.narrator.chapter("The kubelet of the holder's node is stopped");
        let before = self.lease().state()?;
        let name = holder(&before);
        let pod = self.pod(&name)?;
        let node_name = pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
        let node = self.nodes.iter().find(|node| node.name() == node_name).ok_or("The holder has no node.")?;
        let container = self.container(&pod)?;
        self.watch.so_far();
        node.kubelet().kill()?;
        let stopped = Instant::now();
        self.narrator
            .say(&format!("{node_name} has no kubelet. Its containers run on, and the operator renews their leases."));
        let not_ready = self.wait_until("the holder is not Ready", SOON, || {
            let pod = self.pod(&name).map_err(|error| error.to_string())?;
            let conditions = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
            match conditions.iter().find(|condition| condition["type"] == "Ready") {
                Some(ready) if ready["status"] != "True" => Ok(Instant::now()),
                other => Err(format!("{other:?}")),
            }
        })?;
        self.narrator.say(&format!(
            "Kubernetes marks the node and its pods not Ready after {:.1} s (set to {} s here; its default is 50 s)",
            not_ready.duration_since(stopped).as_secs_f32(),
            Cluster::SILENCE.as_secs(),
        ));
        let next = self.watch.wait("another holder", 4 * LEASE_DURATION, |event| is_next(event, &before))?;
        let waited = next.at.duration_since(not_ready);
        // The watch can show the pod later than the operator has seen it.
        if waited + Duration::from_millis(500) < LEASE_DURATION {
            return Err(format!(
                "The lease moved {waited:?} after its holder became not Ready, before unhealthyAfter."
            )
            .into());
        }
        if !container.runs() {
            return Err("The process of the old holder has ended, so this shows nothing.".into());
        }
        let now = self.lease().state()?;
        self.narrator.say(&format!(
            "No proof says that the old holder has stopped, and indeed its process {} runs. The lease waited for\n\
             unhealthyAfter (15 s) and for its keys to expire: {} holds it {:.1} s after not Ready, token {}",
            container.pid(),
            holder(&now),
            waited.as_secs_f32(),
            token(&now),
        ));
        let other_node = self.pod(&holder(&now))?["spec"]["nodeName"] != node_name.as_str();
        if !other_node || now.token() <= before.token() {
            return Err(format!("The next holder should be on another node with a greater token: {now}").into());
        }
        self.see_roles(&now)?;
        self.kubelet_returns(node, &name, &now)
    }

    fn kubelet_returns(&mut self, node: &redislease_lab::node::Node, old: &str, before: &LeaseState) -> Outcome {
        let began = Instant::now();
        node.kubelet().start()?;
        node.wait_ready(self.installation.control_plane())?;
        self.wait_until("the old holder is Ready", SOON, || {
            let pod = self.pod(old).map_err(|error| error.to_string())?;
            let status = &pod["status"]["containerStatuses"][0];
            let conditions = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
            let ready = conditions.iter().any(|found| found["type"] == "Ready" && found["status"] == "True");
            if ready { Ok(()) } else { Err(status.to_string()) }
        })?;
        self.narrator.say(&format!(
            "The kubelet is started again: the node and {old} are Ready {:.1} s later",
            began.elapsed().as_secs_f32(),
        ));
        let now = self.lease().state()?;
        if !same_term(before, &now) {
            return Err(format!("The lease should not move back by itself.\nbefore: {before}\nnow:    {now}").into());
        }
        self.lease().wait_for_roles(&now, crate::story::REPLICAS, SOON)?;
        self.narrator.say(&format!("{old} is standby; {} keeps the lease, token {}", holder(&now), token(&now)));
        Ok(())
    }
}

/// Whether this event shows another holder of the workload's lease.
fn is_next(event: &WatchEvent, before: &LeaseState) -> bool {
    let status = &event.object["status"];
    let is_lease = event.object["metadata"]["name"] == WORKLOAD;
    let other = status["holder"]["pod"].as_str().is_some_and(|pod| Some(pod) != before.holder());
    is_lease && other && status["attempt"].is_string()
}

fn restarts(pod: &serde_json::Value) -> u64 {
    pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or_default()
}
