//! What happens to the holder: its container is killed, its pod is deleted, its kubelet is stopped.

use std::time::{Duration, Instant};

use redislease_lab::{
    Condition, LeaseState,
    node::{Cluster, Node},
};

use crate::{
    narrator::{holder, token},
    setup::{NAMESPACE, Outcome, REPLICAS, STOP_SECONDS, WORKLOAD},
    story::{LEASE_DURATION, RENEW_INTERVAL, SOON, Story, container},
};

impl Story<'_> {
    pub fn container_is_killed(&mut self) -> Outcome {
        self.narrator.chapter("kill -9 of the holder's container");
        let (held, began) = (self.held()?, Instant::now());
        let before = self.lease().state()?;
        let name = holder(&before);
        let pod = self.pod(&name)?;
        let restarts = restarts(&pod);
        let process = container(&pod)?;
        process.kill()?;
        self.narrator.say(&format!("The process {} of {name} is killed.", process.pid()));
        self.wait_until("the kubelet has started the container again", SOON, || {
            let pod = self.pod(&name).map_err(|error| error.to_string())?;
            let now = &pod["status"]["containerStatuses"][0];
            let runs = now["ready"] == true && now["restartCount"].as_u64() > Some(restarts);
            if runs { Ok(()) } else { Err(now.to_string()) }
        })?;
        self.narrator.say(&format!(
            "The kubelet runs a new container in the same pod {:.1} s later. The lease is the pod's, not the\n\
             container's: the pod keeps it, token {}.",
            began.elapsed().as_secs_f32(),
            token(&before),
        ));
        self.none_moved("leases moved by kill -9 of a container", &held, began)
    }

    pub fn holders_pod_is_deleted(&mut self) -> Outcome {
        self.narrator.chapter("The holder's pod is deleted");
        let before = self.lease().state()?;
        let name = holder(&before);
        let process = container(&self.pod(&name)?)?;
        let deleted = Instant::now();
        let exit = process.exit();
        self.kubectl(&["delete", "pod", &name, "--namespace", NAMESPACE, "--wait=false"])?;
        self.narrator
            .say(&format!("{name} gets SIGTERM and finishes its work for {STOP_SECONDS} s. It keeps the lease."));
        let next = self.next_holder(&before, deleted, SOON)?;
        let exit = exit.join().map_err(|_| "The thread that waits for the process has panicked.")??;
        let after =
            next.checked_duration_since(exit.at).ok_or("The next holder was shown before the process had ended.")?;
        self.narrator.say(&format!(
            "Its process ended {:.2} s after the request. The next holder was published {:.2} s after that, not before.",
            exit.at.duration_since(deleted).as_secs_f32(),
            after.as_secs_f32(),
        ));
        self.figure("end of a deleted pod's process to the next holder", format!("{:.2} s", after.as_secs_f32()));
        let now = self.lease().state()?;
        if now.token() <= before.token() {
            return Err(format!("The token did not grow: {} and then {}.", token(&before), token(&now)).into());
        }
        self.narrator.say(&format!("{} holds it, fencing token {} (greater)", holder(&now), token(&now)));
        let deployment = format!("deployment/{WORKLOAD}");
        self.kubectl(&["rollout", "status", &deployment, "--namespace", NAMESPACE, "--timeout=120s"])?;
        // The other leases of the pod have moved too before the next step compares them.
        self.held_by(|holder| holder != name)?;
        self.see_roles(&now)
    }

    pub fn kubelet_is_stopped(&mut self) -> Outcome {
        self.narrator.chapter("The kubelet of the holder's node is stopped");
        let before = self.lease().state()?;
        let name = holder(&before);
        let pod = self.pod(&name)?;
        let node_name = pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
        let node = self.nodes.iter().find(|node| node.name() == node_name).ok_or("The holder has no node.")?;
        let process = container(&pod)?;
        node.kubelet().kill()?;
        let stopped = Instant::now();
        self.narrator
            .say(&format!("{node_name} has no kubelet. Its containers run on, and the operator renews their leases."));
        let not_ready = self.wait_until("the holder is not Ready", SOON, || {
            let pod = self.pod(&name).map_err(|error| error.to_string())?;
            match Condition::of(&pod, "Ready") {
                Some(ready) if ready.status != "True" => Ok(Instant::now()),
                other => Err(format!("{other:?}")),
            }
        })?;
        self.narrator.say(&format!(
            "Kubernetes marks the node and its pods not Ready after {:.1} s (set to {} s here; its default is 50 s)",
            not_ready.duration_since(stopped).as_secs_f32(),
            Cluster::SILENCE.as_secs(),
        ));
        let next = self.next_holder(&before, stopped, 4 * LEASE_DURATION)?;
        let waited = next.duration_since(not_ready);
        // unhealthyAfter, and then the rest of the lease. The last renewal can be an interval old, and the operator can see
        // the pod earlier than this process.
        if waited + RENEW_INTERVAL + Duration::from_secs(1) < 2 * LEASE_DURATION {
            return Err(format!("The lease moved {waited:?} after its holder became not Ready, too early.").into());
        }
        if !process.runs() {
            return Err("The process of the old holder has ended, so this shows nothing.".into());
        }
        let now = self.lease().state()?;
        self.narrator.say(&format!(
            "Nothing proves that the old holder has stopped, and its process {} does run. Therefore the lease waited\n\
             for unhealthyAfter, 15 s, and until its keys had expired: {} holds it {:.1} s after not Ready,\n\
             fencing token {} (greater)",
            process.pid(),
            holder(&now),
            waited.as_secs_f32(),
            token(&now),
        ));
        self.figure("node without a kubelet: not Ready to the next holder", format!("{:.1} s", waited.as_secs_f32()));
        let other_node = self.pod(&holder(&now))?["spec"]["nodeName"] != node_name.as_str();
        if !other_node || now.token() <= before.token() {
            return Err(format!("The next holder should be on another node with a greater token: {now}").into());
        }
        self.see_roles(&now)?;
        self.kubelet_returns(node, &name, &now)
    }

    fn kubelet_returns(&mut self, node: &Node, old: &str, before: &LeaseState) -> Outcome {
        let began = Instant::now();
        node.kubelet().start()?;
        node.wait_ready(self.installation.control_plane())?;
        self.wait_until("the old holder is Ready", SOON, || {
            let pod = self.pod(old).map_err(|error| error.to_string())?;
            let status = &pod["status"]["containerStatuses"][0];
            if Condition::is_true(&pod, "Ready") { Ok(()) } else { Err(status.to_string()) }
        })?;
        self.narrator.say(&format!(
            "The kubelet is started again: the node and {old} are Ready {:.1} s later",
            began.elapsed().as_secs_f32(),
        ));
        let now = self.lease().state()?;
        if !now.continues(before) {
            return Err(format!("The lease should not move back by itself.\nbefore: {before}\nnow:    {now}").into());
        }
        self.lease().wait_for_roles(&now, REPLICAS, SOON)?;
        self.narrator.say(&format!("{old} is standby. {} keeps the lease, token {}.", holder(&now), token(&now)));
        Ok(())
    }
}

fn restarts(pod: &serde_json::Value) -> u64 {
    pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or_default()
}
