//! A workload of which only the elected pod starts.

use std::{
    io,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use redislease_lab::{
    LeaseState,
    node::{Container, Exit},
};
use serde_json::{Value, json};

use crate::{
    narrator::{holder, token},
    setup::{NAMESPACE, Outcome, STOP_SECONDS, deployment},
    story::{SOON, Story, running},
};

const GATED: &str = "reports";
/// An idle machine needs 1 s from the end of a process to the next one.
const LONGEST_START: Duration = Duration::from_secs(10);

impl Story<'_> {
    pub fn only_the_elected_pod_starts(&mut self) -> Outcome {
        self.narrator.chapter("Only the elected pod starts");
        self.installation.control_plane().apply(&gated().to_string())?;
        self.installation.lease(
            NAMESPACE,
            GATED,
            &json!({
                "candidates": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": GATED}},
                "leaseDuration": "15s", "renewInterval": "2s", "gracePeriod": "5s",
                "activation": {"schedulingGate": true},
            }),
        )?;
        let (first, process, _) = self.next_process(None)?;
        self.narrator.say(&format!(
            "{} holds the lease and runs. The other pod has its scheduling gate and no node.",
            holder(&first)
        ));

        let deleted = Instant::now();
        let exit = process.exit();
        self.kubectl(&["delete", "pod", &holder(&first), "--namespace", NAMESPACE, "--wait=false"])?;
        let (second, process, runs) = self.next_process(Some(&first))?;
        let (ended, after) = started_after(exit, runs)?;
        self.narrator.say(&format!(
            "Its pod is deleted: its process ended {:.1} s later, and only then the pod {} was started. It runs {:.1} s \
             after\nthat, token {}.",
            ended.duration_since(deleted).as_secs_f32(),
            holder(&second),
            after.as_secs_f32(),
            token(&second),
        ));
        self.figure("end of a deleted pod's process to the next gated pod's", format!("{:.1} s", after.as_secs_f32()));

        let exit = process.exit();
        let request = "redislease.io/handover-requested=1";
        self.kubectl(&["annotate", "redislease", GATED, "--namespace", NAMESPACE, request])?;
        let (third, _, runs) = self.next_process(Some(&second))?;
        let (_, after) = started_after(exit, runs)?;
        self.narrator.say(&format!(
            "A handover is requested: the operator ends the term and deletes the pod, whose process needs {STOP_SECONDS} s. \
             {}\nruns {:.1} s after its end.",
            holder(&third),
            after.as_secs_f32(),
        ));
        self.remove()
    }

    /// Waits until another pod than before holds the lease and runs, and says since when. Checks that no other pod of the workload runs.
    fn next_process(&self, before: Option<&LeaseState>) -> Outcome<(LeaseState, Container, Instant)> {
        let lease = self.installation.find_lease(NAMESPACE, GATED).wait("held by another pod", SOON, |now| {
            self.narrator.tick();
            now.is_active()
                && now.holder() != before.and_then(LeaseState::holder)
                && now.token() > before.and_then(LeaseState::token)
        })?;
        let name = holder(&lease);
        let process = self.wait_until("the process of the holder runs", SOON, || {
            let pod = self.pod(&name).map_err(|error| error.to_string())?;
            running(&pod).map_err(|error| error.to_string())?.ok_or_else(|| pod["status"].to_string())
        })?;
        let runs = Instant::now();
        for pod in self.gated_pods()?.iter().filter(|pod| pod["metadata"]["name"] != name.as_str()) {
            if running(pod)?.is_some() {
                return Err(format!("Another pod runs as well: {}.", pod["metadata"]["name"]).into());
            }
            let stops = pod["metadata"]["deletionTimestamp"].is_string();
            if !stops && (pod["spec"]["nodeName"].is_string() || pod["spec"]["schedulingGates"].is_null()) {
                return Err(format!("Another pod may start: {}.", pod["metadata"]["name"]).into());
            }
        }
        Ok((lease, process, runs))
    }

    fn gated_pods(&self) -> Outcome<Vec<Value>> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3D{GATED}");
        let pods = self.installation.control_plane().get(&path)?.unwrap_or_default();
        Ok(pods["items"].as_array().cloned().unwrap_or_default())
    }

    /// Later steps count the objects that are left.
    fn remove(&self) -> Outcome {
        let namespace = format!("--namespace={NAMESPACE}");
        self.kubectl(&["delete", "redislease", GATED, &namespace])?;
        self.kubectl(&["delete", "deployment", GATED, &namespace])?;
        self.wait_until("the gated pods are gone", SOON, || {
            let pods = self.gated_pods().map_err(|error| error.to_string())?;
            if pods.is_empty() { Ok(()) } else { Err(format!("{} pods", pods.len())) }
        })
    }
}

/// When the process of the earlier pod ended, and how long after that the next one ran.
fn started_after(exit: JoinHandle<io::Result<Exit>>, runs: Instant) -> Outcome<(Instant, Duration)> {
    let exit = exit.join().map_err(|_| "The thread that waits for the process has panicked.")??;
    let after = runs.checked_duration_since(exit.at).ok_or("The next pod ran before the process had ended.")?;
    if after > LONGEST_START {
        return Err(format!("The next pod ran {} s after the process had ended.", after.as_secs()).into());
    }
    Ok((exit.at, after))
}

fn gated() -> Value {
    let spec = json!({
        "replicas": 2,
        // A rolling update would wait for new pods to be Ready that have not started.
        "strategy": {"type": "Recreate"},
        "template": {"spec": {"schedulingGates": [{"name": format!("lease.redislease.io/{GATED}")}]}},
    });
    deployment(GATED, json!({"spec": spec}))
}
