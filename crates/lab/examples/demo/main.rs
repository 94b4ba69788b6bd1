//! The story of a lease on real servers, told from the API's own answers: `make demo`.
//!
//! `KEEP=1` leaves everything up at the end. The binary of the operator is the one beside this program, or the argument.

mod narrator;
mod story;

use std::{env, path::PathBuf, process::ExitCode};

use narrator::Narrator;
use redislease_lab::{
    Components, ControlPlane, Error as LabError, Installation, InstallationOptions, SYSTEM, keep_running,
};
use serde_json::json;
use story::{NAMESPACE, Outcome, REPLICAS, Story, WORKLOAD};

/// Short, so that the story is: it is what the first election waits for, and the first after a majority forgot.
const LONGEST_LEASE: &str = "10s";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: the demo did not come to its end. {error}");
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
    let operator = installation.start_operator("redislease-operator", &[])?;
    narrator
        .say("operator             started under its own service account, with the rights of the chart's role file");
    let mut story = Story::new(&installation, &operator, narrator);
    // What the operator logged explains a story that goes another way.
    story.tell().map_err(|error| match error.downcast_ref() {
        Some(LabError::NotInTime { .. }) => error,
        _ => format!("{error}\n{}", installation.log_tails()).into(),
    })?;
    let mut narrator = story.into_narrator();
    if keep {
        return leave_up(&installation, operator.address().map(|address| address.to_string()), &mut narrator);
    }
    let status = operator.stop()?;
    if !status.success() {
        return Err(
            format!("The operator was asked to end and ended with {status}.\n{}", installation.log_tails()).into()
        );
    }
    drop(installation);
    narrator.say("All stopped. `make demo KEEP=1` leaves it up to play with.");
    Ok(())
}

fn install(options: &InstallationOptions, narrator: &mut Narrator) -> Outcome<Installation> {
    narrator.chapter("The ground");
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
    narrator.say(&format!("RedisLease           {WORKLOAD} in {NAMESPACE}: one of its pods shall be active"));
    Ok(installation)
}

fn leave_up(installation: &Installation, metrics: Option<String>, narrator: &mut Narrator) -> Outcome {
    let kubectl = redislease_lab::Tools::locate()?.kubectl;
    let stop = keep_running()?;
    let redis = installation.redis().iter().map(|server| format!("redis-cli -p {}\n", server.address().port()));
    narrator.say("All of it stays up, as KEEP=1 asked.");
    narrator.quote(&format!(
        "export KUBECONFIG={}\n{} get redislease -A -w\n{} status -A -w\n{}curl {}/metrics\nkill {stop}   # stops all of it",
        installation.control_plane().kubeconfig().display(),
        kubectl.display(),
        operator_binary()?.display(),
        redis.collect::<String>(),
        metrics.unwrap_or_default(),
    ));
    Ok(())
}

/// The examples of a build lie one folder below its binaries.
fn operator_binary() -> Outcome<PathBuf> {
    if let Some(path) = env::args_os().nth(1) {
        return Ok(path.into());
    }
    let own = env::current_exe()?;
    let binary = own.parent().and_then(|examples| examples.parent()).map(|built| built.join("redislease"));
    binary.filter(|binary| binary.is_file()).ok_or_else(|| {
        format!("There is no operator to run beside {}: start it with `make demo`.", own.display()).into()
    })
}
