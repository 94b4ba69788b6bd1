//! Shows the life of a lease on real servers: `make demo`.
//!
//! With `KEEP=1` everything keeps running at the end, until Ctrl-C. The operator's binary is next to this program, or the
//! argument.

mod narrator;
mod story;

use std::{env, path::PathBuf, process::ExitCode};

use narrator::Narrator;
use redislease_lab::{
    Components, ControlPlane, Error as LabError, Installation, InstallationOptions, Operator, SYSTEM, keep_running,
};
use serde_json::json;
use story::{NAMESPACE, Outcome, REPLICAS, Story, WORKLOAD};

/// Short, because the first election waits for it, and so does the first one after a majority has lost its data.
const LONGEST_LEASE: &str = "15s";
/// The replicas of the operator.
const OPERATORS: usize = 2;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: the demo failed. {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome {
    let mut narrator = Narrator::new();
    let keep = env::var("KEEP").is_ok_and(|keep| !matches!(keep.as_str(), "" | "0"));
    let options = InstallationOptions {
        cluster: "demo".to_owned(),
        quorum: json!({"maxLeaseDuration": LONGEST_LEASE}),
        ..InstallationOptions::new(operator_binary()?)
    };
    let installation = install(&options, &mut narrator)?;
    let replicas = installation.start_replicas(OPERATORS)?;
    narrator.say("operator             2 replicas with a service account and the rights of the chart");
    let mut story = Story::new(&installation, &replicas, narrator);
    // The operator's log explains an unexpected result.
    story.tell().map_err(|error| match error.downcast_ref() {
        Some(LabError::NotInTime { .. }) => error,
        _ => format!("{error}\n{}", installation.log_tails()).into(),
    })?;
    let mut narrator = story.into_narrator();
    if keep {
        return stay_up(&installation, &replicas, &mut narrator);
    }
    for operator in &replicas {
        let status = operator.stop()?;
        if !status.success() {
            return Err(format!("An operator exited with {status} after SIGTERM.\n{}", installation.log_tails()).into());
        }
    }
    drop(installation);
    narrator.say("Everything has stopped. `make demo KEEP=1` keeps it running.");
    Ok(())
}

fn install(options: &InstallationOptions, narrator: &mut Narrator) -> Outcome<Installation> {
    narrator.chapter("Setup");
    let redis = options.start_redis()?;
    let addresses: Vec<_> = redis.iter().map(|server| server.address().to_string()).collect();
    narrator.say(&format!("3 redis-servers      {}, independent of each other, empty", addresses.join(" ")));
    let control_plane = ControlPlane::start(Components::Nodes(options.nodes))?;
    let version = control_plane.get("/version")?.unwrap_or_default();
    let version = version["gitVersion"].as_str().unwrap_or_default().to_owned();
    narrator.say(&format!("Kubernetes {version:<9} {}, {} nodes", control_plane.address(), options.nodes));
    let installation = Installation::install(options, control_plane, redis)?;
    narrator.say(&format!("RedisQuorum          default in {SYSTEM}: the 3 servers, longest lease {LONGEST_LEASE}"));
    installation.deployment(NAMESPACE, WORKLOAD, REPLICAS)?;
    narrator.say(&format!("Deployment           {WORKLOAD} in {NAMESPACE}: {REPLICAS} replicas, all Ready"));
    installation.lease(NAMESPACE, WORKLOAD, &story::lease_spec())?;
    narrator.say(&format!("RedisLease           {WORKLOAD} in {NAMESPACE}: one pod of the Deployment is to be active"));
    Ok(installation)
}

/// Shows how to use what runs, until somebody ends this process.
fn stay_up(installation: &Installation, replicas: &[Operator], narrator: &mut Narrator) -> Outcome {
    let kubectl = redislease_lab::Tools::locate()?.kubectl;
    let redis = installation.redis().iter().map(|server| format!("redis-cli -p {}\n", server.address().port()));
    let metrics = replicas.iter().filter_map(Operator::address).map(|address| format!("curl {address}/metrics\n"));
    let stop = std::process::id();
    narrator.say("Everything keeps running because KEEP=1 is set. In another terminal:");
    narrator.quote(&format!(
        "export KUBECONFIG={}\n{} get redislease -A -w\n{} why billing -n shop\n{}{}kill {stop}   # stops all of it, as Ctrl-C does here",
        installation.control_plane().kubeconfig().display(),
        kubectl.display(),
        operator_binary()?.display(),
        redis.collect::<String>(),
        metrics.collect::<String>(),
    ));
    keep_running()
}

/// The examples of a build are one folder below its binaries.
fn operator_binary() -> Outcome<PathBuf> {
    if let Some(path) = env::args_os().nth(1) {
        return Ok(path.into());
    }
    let own = env::current_exe()?;
    let binary = own.parent().and_then(|examples| examples.parent()).map(|built| built.join("redislease"));
    binary.filter(|binary| binary.is_file()).ok_or_else(|| {
        format!("There is no operator binary next to {}: start the demo with `make demo`.", own.display()).into()
    })
}
