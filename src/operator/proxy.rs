//! Whether the API server is reached without the proxy of the environment.

use std::net::{IpAddr, SocketAddr};

use axum::http::Uri;

/// Whether `proxy` is that of the environment, and `server` is on this machine or `NO_PROXY` exempts it. The kube library compares
/// `NO_PROXY` with the address of the proxy instead. A `proxy-url` of the kubeconfig that is another one always counts, as for kubectl.
pub(super) fn is_exempt(proxy: &Uri, server: &Uri, variable: impl Fn(&str) -> Option<String>) -> bool {
    let either = |name: &str| {
        let value = variable(name).filter(|value| !value.is_empty());
        value.or_else(|| variable(&name.to_lowercase())).filter(|value| !value.is_empty())
    };
    let of_environment = either("HTTPS_PROXY").and_then(|value| value.parse::<Uri>().ok());
    let Some(host) = server.host().filter(|_| of_environment.as_ref() == Some(proxy)) else { return false };
    let port = server.port_u16().unwrap_or(if server.scheme_str() == Some("http") { 80 } else { 443 });
    let host = without_brackets(host).to_lowercase();
    let is_loopback = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    let exempt = either("NO_PROXY").unwrap_or_default();
    host == "localhost"
        || is_loopback
        || exempt.split(',').any(|entry| covers(&entry.trim().to_lowercase(), &host, port))
}

/// Whether one entry of `NO_PROXY` covers the host: `*`, an address, a range such as `10.0.0.0/8`, or a name, which covers its
/// subdomains too. An address and a name can have a port.
fn covers(entry: &str, host: &str, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    let address: Option<IpAddr> = host.parse().ok();
    if let Some((network, bits)) = entry.split_once('/') {
        let network = without_brackets(network).parse().ok();
        return network
            .zip(address)
            .zip(bits.parse().ok())
            .is_some_and(|((network, address), bits)| contains(network, bits, address));
    }
    if let Ok(exact) = entry.parse::<SocketAddr>() {
        return address == Some(exact.ip()) && port == exact.port();
    }
    if let Ok(exact) = without_brackets(entry).parse::<IpAddr>() {
        return address == Some(exact);
    }
    let (name, only) = entry.rsplit_once(':').map_or((entry, None), |(name, port)| (name, port.parse::<u16>().ok()));
    let domain = name.trim_start_matches('*').trim_start_matches('.');
    let is_subdomain = host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    !domain.is_empty() && only.is_none_or(|only| only == port) && (is_subdomain || name == host)
}

fn contains(network: IpAddr, bits: u32, address: IpAddr) -> bool {
    let same = |network: u128, address: u128, width: u32| {
        bits <= width && (bits == 0 || (network ^ address) >> (width - bits) == 0)
    };
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => same(network.to_bits().into(), address.to_bits().into(), 32),
        (IpAddr::V6(network), IpAddr::V6(address)) => same(network.to_bits(), address.to_bits(), 128),
        _ => false,
    }
}

fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_covers_names_addresses_and_ranges() {
        let name = "https://api.eu.example.com:6443/";
        for (no_proxy, server, exempt) in [
            ("*", name, true),
            ("example.com", name, true),
            ("localhost, .example.com", name, true),
            ("*.example.com", name, true),
            ("API.eu.example.com", name, true),
            ("api.eu.example.com:6443", name, true),
            ("api.eu.example.com:443", name, false),
            (".api.eu.example.com", name, false),
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
            ("10.96.0.1:443", "https://10.96.0.1:6443", false),
            ("10.96.0.1:443", "https://10.96.0.1", true),
            ("fd00::/8", "https://[fd00::1]:6443", true),
            ("[fd00::1]", "https://[fd00::1]:6443", true),
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
