"""What NetworkPolicies allow, as Kubernetes defines it: a pod that a policy selects may do only what some policy allows.

    Network(objects).allows(labels_of_a_pod, labels_of_another, "grpc")

A peer is a pod of the release, as its labels; {"namespace": NAME, …labels}: a pod of another namespace; {"ip": ADDRESS}: an
address outside; {"node": NAME}: a machine of the cluster. As with Cilium, an ipBlock matches neither pods nor nodes.
"""

import ipaddress


class Network:
    def __init__(self, objects):
        self._policies = [o["spec"] for o in objects if o["kind"] == "NetworkPolicy"]

    def allows(self, source, target, port):
        """`port`: a name, as policies write it for pods of the release, or a number."""
        return (self._passes(source, "Egress", target, port) and
                self._passes(target, "Ingress", source, port))

    def isolated(self, labels, direction):
        return bool(self._of(labels, direction))

    def _of(self, labels, direction):
        if {"ip", "namespace", "node"} & set(labels):
            return []
        return [policy for policy in self._policies if direction in policy["policyTypes"] and
                policy["podSelector"].get("matchLabels", {}).items() <= labels.items()]

    def _passes(self, pod, direction, peer, port):
        policies = self._of(pod, direction)
        if not policies:
            return True
        side = "from" if direction == "Ingress" else "to"
        return any(_has_peer(rule.get(side), peer) and _has_port(rule.get("ports"), port)
                   for policy in policies for rule in policy.get(direction.lower()) or [])


def _has_port(ports, port):
    return not ports or any(entry.get("port") == port for entry in ports)


def _has_peer(peers, peer):
    return not peers or any(_is_peer(entry, peer) for entry in peers)


def _is_peer(entry, peer):
    if "ipBlock" in entry:
        return "ip" in peer and _in_block(entry["ipBlock"], ipaddress.ip_address(peer["ip"]))
    if "ip" in peer or "node" in peer:
        return False
    if "namespaceSelector" in entry:
        wanted = entry["namespaceSelector"].get("matchLabels", {}).get("kubernetes.io/metadata.name")
        is_there = wanted in (None, peer.get("namespace"))
    else:
        is_there = "namespace" not in peer
    return is_there and entry.get("podSelector", {}).get("matchLabels", {}).items() <= peer.items()


def _in_block(block, address):
    return _within(address, block["cidr"]) and not any(
        _within(address, hole) for hole in block.get("except", []))


def _within(address, cidr):
    network = ipaddress.ip_network(cidr)
    return address.version == network.version and address in network
