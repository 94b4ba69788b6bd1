//! `null` for a value. Helm removes the value before it checks the schema, so the templates would see no value at all.

use redislease_lab::{Helm, Result};
use serde_json::Value;

/// Everything that is disabled by default, so that the templates use as many values as possible.
const FEATURES: &str = "--set=networkPolicy.enabled=true,metrics.serviceMonitor.enabled=true,devRedis.enabled=true,\
    metrics.prometheusRule.enabled=true,metrics.dashboard.enabled=true,\
    rbac.allowScale=true,rbac.allowSuspend=true,rbac.allowSchedulingGate=true";

/// Values for which `null` means "none", as opposed to the default.
const OPTIONAL: &[&str] = &[
    "metrics.dashboard.labels",
    "metrics.dashboard.labels.grafana_dashboard",
    "podSecurityContext.runAsGroup",
    "podSecurityContext.runAsUser",
    "resources",
    "resources.limits",
    "resources.limits.memory",
    "resources.requests",
    "resources.requests.cpu",
    "resources.requests.memory",
];

fn collect_paths(prefix: &str, values: &Value, paths: &mut Vec<String>) {
    for (name, value) in values.as_object().into_iter().flatten() {
        let path = format!("{prefix}{name}");
        collect_paths(&format!("{path}."), value, paths);
        paths.push(path);
    }
}

#[test]
fn null_is_refused_or_is_the_same_as_the_empty_default() -> Result<()> {
    let helm = Helm::new()?;
    let values = include_str!("../../charts/redislease/values.yaml");
    let values: Value = serde_saphyr::from_str(values).expect("the values are YAML");
    let mut paths = Vec::new();
    collect_paths("", &values, &mut paths);
    assert!(paths.len() > 80, "{paths:?}");
    let usual = helm.template(&[FEATURES])?;
    let mut others = Vec::new();
    for path in &paths {
        match helm.template(&[FEATURES, &format!("--set={path}=null")]) {
            Ok(rendered) if rendered == usual => {}
            Ok(_) => others.push(path.as_str()),
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("missing property"), "{path}: {error}");
            }
        }
    }
    others.sort_unstable();
    assert_eq!(others, OPTIONAL, "the schema must require each value that the templates use");
    Ok(())
}
