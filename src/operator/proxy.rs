//! Whether the API server is reached without the proxy of the environment.

use axum::http::Uri;
use hyper_util::client::proxy::matcher::Matcher;

/// This machine, which no proxy can reach.
const LOOPBACK: &str = "localhost,127.0.0.0/8,::1";

/// Whether `proxy` is that of the environment, and `server` is on this machine or `NO_PROXY` exempts it. The kube library compares
/// `NO_PROXY` with the address of the proxy instead. A `proxy-url` of the kubeconfig that is another one always counts, as for kubectl.
pub(super) fn is_exempt(proxy: &Uri, server: &Uri, variable: impl Fn(&str) -> Option<String>) -> bool {
    let either = |name: &str| {
        let value = variable(name).filter(|value| !value.is_empty());
        value.or_else(|| variable(&name.to_lowercase())).filter(|value| !value.is_empty())
    };
    let of_environment = either("HTTPS_PROXY").and_then(|value| value.parse::<Uri>().ok());
    let no_proxy = either("NO_PROXY").unwrap_or_default();
    let exempt = || Matcher::builder().all(proxy.to_string()).no(format!("{LOOPBACK},{no_proxy}")).build();
    // The library takes a star for names only.
    let is_all = no_proxy.split(',').any(|entry| entry.trim() == "*");
    of_environment.as_ref() == Some(proxy) && (is_all || exempt().intercept(server).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_exempts_names_addresses_and_ranges() {
        let name = "https://api.eu.example.com:6443/";
        for (no_proxy, server, exempt) in [
            ("*", name, true),
            ("*", "https://10.96.0.1", true),
            ("example.com", name, true),
            ("localhost, .example.com", name, true),
            ("API.eu.example.com", name, true),
            ("ample.com", name, false),
            ("", name, false),
            ("", "https://127.0.0.1:6443", true),
            ("", "https://localhost:6443", true),
            ("", "https://[::1]:6443", true),
            (",", name, false),
            ("10.0.0.0/8", "https://10.96.0.1", true),
            ("10.0.0.0/8", "https://11.96.0.1", false),
            ("0.0.0.0/0", "https://11.96.0.1", true),
            ("10.96.0.1", "https://10.96.0.1:6443", true),
            ("fd00::/8", "https://[fd00::1]:6443", true),
            ("fd00::1", "https://[fd00::2]:6443", false),
        ] {
            let variable = |name: &str| match name {
                "https_proxy" => Some("http://proxy:3128".to_owned()),
                "NO_PROXY" => Some(no_proxy.to_owned()),
                _ => None,
            };
            let uri = |text: &str| text.parse::<Uri>().unwrap();
            assert_eq!(is_exempt(&uri("http://proxy:3128"), &uri(server), variable), exempt, "{no_proxy} {server}");
            assert!(!is_exempt(&uri("http://of-the-kubeconfig:3128"), &uri(server), variable), "{no_proxy}");
        }
    }
}
