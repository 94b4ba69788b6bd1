# The network of the sandbox: a bridge that joins the real nodes, with the addresses of the servers on it.
#   network.sh API_SERVER_ADDRESS ADDRESS...   every address is of the network 10.99.0.0/24, except that of the API server
set -eu
api_server=$1
shift
ip link set lo up
ip link add name nodes type bridge
for address; do ip address add "$address/24" dev nodes; done
# The first address of the service network: pods reach the API server by the Service `kubernetes` without kube-proxy.
ip address add "$api_server/32" dev nodes
ip link set nodes up
echo 1 >/proc/sys/net/ipv4/ip_forward
