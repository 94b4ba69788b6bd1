//! The flags that allow ways of activation. Each needs more rights, so `doctor` has them, too.

use clap::Args;
use clap::builder::BoolishValueParser;
use redislease_plan::plan::Allowed;

#[derive(Clone, Copy, Debug, Default, Args)]
pub(super) struct Activations {
    /// Allow leases with spec.activation.schedulingGate: the operator removes scheduling gates from pods, and deletes pods that it
    /// has started. This needs more rights
    #[arg(long, env = "REDISLEASE_ALLOW_SCHEDULING_GATE", value_parser = BoolishValueParser::new())]
    pub allow_scheduling_gate: bool,

    /// Allow leases with spec.activation.scale: the operator changes the replicas of Deployments and StatefulSets. This needs
    /// more rights
    #[arg(long, env = "REDISLEASE_ALLOW_SCALE", value_parser = BoolishValueParser::new())]
    pub allow_scale: bool,

    /// Allow leases with spec.activation.suspend: the operator suspends and resumes CronJobs. This needs more rights
    #[arg(long, env = "REDISLEASE_ALLOW_SUSPEND", value_parser = BoolishValueParser::new())]
    pub allow_suspend: bool,
}

impl From<Activations> for Allowed {
    fn from(allow: Activations) -> Self {
        let Activations { allow_scheduling_gate, allow_scale, allow_suspend } = allow;
        Self { scheduling_gate: allow_scheduling_gate, scale: allow_scale, suspend: allow_suspend }
    }
}
