//! Who manages a field of an object, according to its `managedFields`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

/// The manager that wrote the field last.
pub(super) fn manager_of(entries: &[ManagedFieldsEntry], path: &[String]) -> Option<String> {
    let managing = entries.iter().filter(|entry| {
        let mut fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        for part in path {
            fields = fields.and_then(|fields| fields.get(format!("f:{part}")));
        }
        fields.is_some()
    });
    managing.max_by_key(|entry| entry.time.as_ref().map(|time| time.0)).and_then(|entry| entry.manager.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_latest_manager_of_a_field_is_named() {
        let entry = |manager: &str, hour: u32, fields: serde_json::Value| {
            json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": format!("2026-01-01T0{hour}:00:00Z"),
                "fieldsType": "FieldsV1", "fieldsV1": fields})
        };
        let label = json!({"f:metadata": {"f:labels": {".": {}, "f:lease.redislease.io/l": {}}}});
        let entries: Vec<ManagedFieldsEntry> = serde_json::from_value(json!([
            entry("redislease", 1, label.clone()),
            entry("fighter", 2, label),
            entry("kube-controller-manager", 3, json!({"f:spec": {"f:replicas": {}}})),
        ]))
        .unwrap();
        let manager =
            |path: &[&str]| manager_of(&entries, &path.iter().map(|&part| part.to_owned()).collect::<Vec<_>>());
        assert_eq!(manager(&["metadata", "labels", "lease.redislease.io/l"]).as_deref(), Some("fighter"));
        assert_eq!(manager(&["spec", "replicas"]).as_deref(), Some("kube-controller-manager"));
        assert_eq!(manager(&["spec", "suspend"]), None);
    }
}
