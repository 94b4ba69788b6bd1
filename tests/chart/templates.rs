//! The templates without a cluster: lints, unit tests, generated files, and what holds for every combination of values.

use std::{collections::BTreeSet, path::Path, process::Command};

use redislease_lab::{Helm, Result, SYSTEM, repository};
use serde_json::{Value, json};

use crate::combinations;
use crate::objects::{Object, read, render};

/// Kinds that have no namespace.
const CLUSTER_SCOPED: &[&str] = &[
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

#[test]
fn every_combination_is_rendered_within_the_rules() -> Result<()> {
    let helm = Helm::new()?;
    for combination in combinations::all() {
        let args: Vec<&str> = combination.iter().map(String::as_str).collect();
        let objects = render(&helm, &args)?;
        let mut seen = BTreeSet::new();
        for object in &objects {
            let known = seen.insert((object.kind(), object.namespace(), object.name()));
            assert!(known, "{combination:?}: two objects {} {}", object.kind(), object.name());
            let scoped = !object.namespace().is_empty();
            assert_eq!(scoped, !CLUSTER_SCOPED.contains(&object.kind()), "{combination:?}: {object:?}");
            assert_ne!(object.kind(), "Secret", "{combination:?}: the chart has no passwords");
            check_pod(object, &combination);
            check_rules(object, &combination);
        }
        let watched = combination.iter().any(|value| value.contains("watchNamespaces"));
        if watched {
            check_no_rights_elsewhere(&objects, &combination);
        }
    }
    Ok(())
}

/// The pod security standard `restricted`, a read-only root, and an image with a tag or digest.
fn check_pod(object: &Object, combination: &[String]) {
    let Some(pod) = object.pod() else { return };
    let context = &pod["securityContext"];
    assert_eq!(context["runAsNonRoot"], true, "{combination:?}");
    assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault", "{combination:?}");
    for container in pod["containers"].as_array().into_iter().flatten() {
        let wanted = json!({
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        });
        assert_eq!(container["securityContext"], wanted, "{combination:?}");
        let image = container["image"].as_str().unwrap_or_default();
        assert!(image.contains(':'), "{combination:?}: {image}");
    }
}

/// No wildcards, and nothing that leads to more rights. The aggregated roles are for users.
fn check_rules(object: &Object, combination: &[String]) {
    if !["Role", "ClusterRole"].contains(&object.kind()) {
        return;
    }
    let rules = object.0["rules"].as_array().into_iter().flatten();
    for rule in rules {
        let text = rule.to_string();
        for forbidden in ["\"*\"", "bind", "escalate", "impersonate", "pods/exec", "webhook", "\"list\",\"secrets\""] {
            assert!(!text.contains(forbidden), "{combination:?}: {} has {text}", object.name());
        }
        let reads_secrets = rule["resources"].as_array().is_some_and(|names| names.contains(&json!("secrets")));
        if reads_secrets {
            assert_eq!(object.namespace(), SYSTEM, "{combination:?}: {text}");
            assert_eq!(rule["verbs"], json!(["get"]), "{combination:?}: {text}");
        }
    }
}

/// The operator's only right in the whole cluster is to read Kubernetes nodes.
fn check_no_rights_elsewhere(objects: &[Object], combination: &[String]) {
    let bound: BTreeSet<&str> = objects
        .iter()
        .filter(|object| object.kind() == "ClusterRoleBinding")
        .filter_map(|object| object.0["roleRef"]["name"].as_str())
        .collect();
    let roles = objects.iter().filter(|object| object.kind() == "ClusterRole" && bound.contains(object.name()));
    for role in roles {
        let nodes = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]);
        assert_eq!(role.0["rules"], nodes, "{combination:?}");
    }
}

/// Numbers inside a manifest, wherever they are.
fn collect_numbers(value: &Value, numbers: &mut Vec<i64>) {
    match value {
        Value::Number(number) => numbers.extend(number.as_i64()),
        Value::Array(items) => items.iter().for_each(|item| collect_numbers(item, numbers)),
        Value::Object(fields) => fields.values().for_each(|field| collect_numbers(field, numbers)),
        _ => {}
    }
}

#[test]
fn names_that_look_like_numbers_stay_texts() -> Result<()> {
    let names = "watchNamespaces={1001},cluster.name=1002,imagePullSecrets={1003},serviceAccount.name=1004,\
        priorityClassName=1005,nameOverride=1006,quorums[0].name=1007,quorums[0].existingSecret=1008,\
        quorums[0].tls.existingSecret=1009,quorums[0].keyPrefix=1010,quorums[0].nodes[0].name=1011,\
        quorums[0].nodes[0].zone=1012,quorums[0].nodes[0].address=1013:6379,rbac.secretNames={1008,1009},\
        fullnameOverride=leases";
    let switches = "quorums[0].allowSingleNode=true,devRedis.enabled=true,metrics.serviceMonitor.enabled=true,\
        networkPolicy.enabled=true,metrics.prometheusRule.enabled=true,metrics.dashboard.enabled=true";
    let (chart, namespace) = (Helm::chart(), "--namespace=1014");
    let args = ["template", "1015", &chart, namespace, "--set-string", names, "--set", switches];
    let text = Helm::new()?.run(&args)?;
    for number in 1001..=1015 {
        assert!(text.contains(&number.to_string()), "{number} is missing");
    }
    for object in read(&text) {
        let mut numbers = Vec::new();
        collect_numbers(&object.0, &mut numbers);
        let names: Vec<_> = numbers.into_iter().filter(|number| (1001..=1015).contains(number)).collect();
        assert!(names.is_empty(), "{} {} has names without quotes: {names:?}", object.kind(), object.name());
    }
    Ok(())
}

/// Two releases in one cluster, as docs/install.md describes them. Helm refuses an object of another release.
#[test]
fn two_releases_have_no_object_in_common() -> Result<()> {
    let helm = Helm::new()?;
    let objects = |release: &str, args: &[&str]| -> Result<BTreeSet<(String, String, String)>> {
        let namespace = format!("--namespace={release}");
        let text = helm.run(&[&["template", release, &Helm::chart(), &namespace], args].concat())?;
        let identity = |object: &Object| [object.kind(), object.namespace(), object.name()].map(str::to_owned).into();
        Ok(read(&text).iter().map(identity).collect())
    };
    let first = objects("redislease", &["--set=watchNamespaces={shop}"])?;
    let second = objects("redislease-billing", &["--set=watchNamespaces={billing},crds.enabled=false"])?;
    assert!(first.len() > 10 && second.len() > 10, "{first:?} {second:?}");
    assert!(first.is_disjoint(&second), "{:?}", first.intersection(&second).collect::<Vec<_>>());
    let with_definitions = objects("redislease-billing", &["--set=watchNamespaces={billing}"])?;
    let common: BTreeSet<&str> = first.intersection(&with_definitions).map(|(kind, ..)| kind.as_str()).collect();
    assert_eq!(common, BTreeSet::from(["CustomResourceDefinition"]));
    Ok(())
}

/// The reader refuses a key that is there twice, as Kustomize and Flux do.
#[test]
fn the_more_specific_of_two_equal_labels_wins() -> Result<()> {
    let monitors = ["metrics.serviceMonitor", "metrics.podMonitor", "metrics.prometheusRule"];
    let own = monitors.map(|of| format!("{of}.enabled=true,{of}.additionalLabels.team=own"));
    let dashboard = "metrics.dashboard.enabled=true,metrics.dashboard.labels.team=own".to_owned();
    for own in own.into_iter().chain([dashboard, "podLabels.team=own".to_owned()]) {
        let objects = render(&Helm::new()?, &["--set=commonLabels.team=common", "--set", &own])?;
        let labels = ["/metadata/labels/team", "/spec/template/metadata/labels/team"];
        let teams = objects.iter().flat_map(|object| labels.map(|at| object.0.pointer(at)));
        assert_eq!(teams.filter(|team| *team == Some(&json!("own"))).count(), 1, "{own}");
    }
    Ok(())
}

/// With Helm 3, templates/quorums.yaml compares an existing quorum with them.
#[test]
fn the_chart_knows_each_default_of_a_quorum() {
    let definition: Value = serde_saphyr::from_str(&redislease_lab::read("crds/redisquorums.yaml")).expect("YAML");
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let template = redislease_lab::read("charts/redislease/templates/quorums.yaml");
    let mut known = 0;
    for (field, schema) in definition.pointer(spec).and_then(Value::as_object).expect("the spec has fields") {
        let default = &schema["default"];
        if !default.is_null() {
            let pair = format!("\"{field}\" {default}");
            assert!(template.contains(&pair), "the template does not know {pair}");
            known += 1;
        }
    }
    assert_eq!(known, 4);
}

#[test]
fn lint_is_strict() -> Result<()> {
    let helm = Helm::new()?;
    let quorum =
        "quorums[0].name=q,quorums[0].allowSingleNode=true,quorums[0].nodes[0].name=a,quorums[0].nodes[0].address=a:1";
    let monitoring =
        "metrics.serviceMonitor.enabled=true,metrics.prometheusRule.enabled=true,metrics.dashboard.enabled=true";
    for values in
        ["replicas=2", "watchNamespaces={shop}", "devRedis.enabled=true,networkPolicy.enabled=true", quorum, monitoring]
    {
        let said = helm.run(&["lint", "--strict", &Helm::chart(), "--set", values])?;
        assert!(said.contains("1 chart(s) linted, 0 chart(s) failed"), "{values}: {said}");
    }
    Ok(())
}

#[test]
fn unit_tests_of_the_templates_pass() {
    let script = repository().join("hack/build-tools.sh");
    let output = Command::new(script).arg("--print").output().expect("the script can be run");
    let tools = String::from_utf8_lossy(&output.stdout).into_owned();
    let path = tools.lines().find_map(|line| line.strip_prefix("helm-unittest\t")).unwrap_or_default();
    assert!(Path::new(path).is_file(), "helm-unittest is missing (looked for {path}): run `make tools`");
    let output = Command::new(path).arg("--strict").arg(Helm::chart()).output().expect("helm-unittest can be run");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    // It also makes a folder for snapshots there.
    let entries = std::fs::read_dir(Path::new(&Helm::chart()).join("tests")).expect("the suites are readable");
    let suites = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().ends_with("_test.yaml")).count();
    assert!(said.contains(&format!("{suites} passed, {suites} total")), "{said}");
}

#[test]
fn generated_files_are_current() {
    let script = repository().join("hack/generate-chart.sh");
    let output = Command::new(script).arg("--check").output().expect("the script can be run");
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(output.status.success(), "{said}");
}

const README: &str = "charts/redislease/README.md";

fn schema_of_values() -> Value {
    let schema = redislease_lab::read("charts/redislease/values.schema.json");
    serde_json::from_str(&schema).expect("the schema is JSON")
}

#[test]
fn readme_describes_each_field_of_a_quorum() {
    let (schema, readme) = (schema_of_values(), redislease_lab::read(README));
    let fields = schema.pointer("/properties/quorums/items/properties").and_then(Value::as_object);
    for field in fields.expect("the schema describes quorums").keys() {
        assert!(readme.contains(&format!("| `{field}` |")), "README.md does not describe quorums[].{field}");
    }
}

#[test]
fn every_object_of_the_schema_refuses_unknown_fields() {
    let mut open = Vec::new();
    collect_open("", &schema_of_values(), &mut open);
    // Helm fills the first one; the API server checks the others.
    let affinity = ["nodeAffinity", "podAffinity", "podAntiAffinity"]
        .map(|kind| format!("/properties/affinity/properties/{kind}"));
    let expected: Vec<String> = affinity.into_iter().chain(["/properties/global".to_owned()]).collect();
    open.sort();
    assert_eq!(open, expected);
}

#[test]
fn readme_describes_each_value() {
    let readme = redislease_lab::read(README);
    let (_, table) = readme.split_once("| Key | Type | Default | Description |").expect("README.md lists the values");
    let rows: Vec<Vec<&str>> = table.lines().skip(2).map(|row| row.trim_matches('|').split(" | ").collect()).collect();
    assert!(rows.len() > 50, "{rows:?}");
    for row in rows {
        assert!(row.last().is_some_and(|text| text.trim().ends_with('.')), "no sentence describes {row:?}");
    }
}

/// The objects that allow any field.
fn collect_open(path: &str, schema: &Value, open: &mut Vec<String>) {
    if schema["type"] == "object" && schema["additionalProperties"].is_null() {
        open.push(path.to_owned());
    }
    match schema {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, field)| collect_open(&format!("{path}/{name}"), field, open));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_open(path, item, open)),
        _ => {}
    }
}
