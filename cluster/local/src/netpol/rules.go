package main

import (
	"fmt"
	"sort"
	"strings"

	v1 "k8s.io/api/core/v1"
	netv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// endpoint is a pod that has an address.
type endpoint struct {
	*v1.Pod
	address         string
	namespaceLabels labels.Set
}

// direction is what differs between egress and ingress rules.
type direction struct {
	kind  netv1.PolicyType
	chain string // of nftables, jumped to from both hooks or from forwarding only
	self  string // where a packet holds the selected pod's address
	peer  string // and where the other side's
}

var directions = []direction{
	{netv1.PolicyTypeEgress, "from_pod", "saddr", "daddr"},
	{netv1.PolicyTypeIngress, "to_pod", "daddr", "saddr"},
}

// table is the whole nftables table as text for `nft -f`: per pod and direction
// that a policy selects a chain of what is allowed, ending in a drop.
func table(pods []endpoint, policies []*netv1.NetworkPolicy, bridge, podRange string) string {
	sort.Slice(pods, func(i, j int) bool { return pods[i].address < pods[j].address })
	sort.Slice(policies, func(i, j int) bool { return policies[i].UID < policies[j].UID })
	var chains strings.Builder
	for _, d := range directions {
		var verdicts []string
		for _, pod := range pods {
			rules, isolated := allowed(d, pod, policies, pods)
			if !isolated {
				continue
			}
			chain := d.chain + "_" + strings.ReplaceAll(pod.address, ".", "_")
			fmt.Fprintf(&chains, "  chain %s {\n    %s\n  }\n", chain, strings.Join(append(rules, "counter drop"), "\n    "))
			verdicts = append(verdicts, pod.address+" : jump "+chain)
		}
		fmt.Fprintf(&chains, "  chain %s {\n    ip %s %s ip %s != @pods counter drop\n", d.chain, d.self, podRange, d.self)
		if len(verdicts) > 0 {
			fmt.Fprintf(&chains, "    ip %s vmap { %s }\n", d.self, strings.Join(verdicts, ", "))
		}
		chains.WriteString("  }\n")
	}
	elements := ""
	if len(pods) > 0 {
		elements = "elements = { " + strings.Join(addresses(pods), ", ") + " }"
	}
	// An empty table first, so that there is one to delete; nft applies the whole at once.
	return fmt.Sprintf(`table inet netpol {}
delete table inet netpol
table inet netpol {
  set pods { type ipv4_addr; %s; }
%s  chain forward {
    type filter hook forward priority -10; policy accept;
    iifname %q meta nfproto ipv6 drop
    ct state established,related accept
    jump from_pod
    jump to_pod
  }
  chain input {
    type filter hook input priority -10; policy accept;
    iifname != %q accept
    ct state established,related accept
    jump from_pod
  }
}
`, elements, chains.String(), bridge, bridge)
}

// allowed are the rules of every policy that selects a pod, and whether any does.
func allowed(d direction, pod endpoint, policies []*netv1.NetworkPolicy, pods []endpoint) (rules []string, isolated bool) {
	for _, policy := range policies {
		if policy.Namespace != pod.Namespace || !matches(&policy.Spec.PodSelector, pod.Labels) {
			continue
		}
		for _, kind := range policy.Spec.PolicyTypes { // the API server fills them in
			isolated = isolated || kind == d.kind
		}
		if d.kind == netv1.PolicyTypeEgress {
			for _, rule := range policy.Spec.Egress {
				rules = append(rules, allow(d, pod, policy.Namespace, rule.To, rule.Ports, pods)...)
			}
		} else {
			for _, rule := range policy.Spec.Ingress {
				rules = append(rules, allow(d, pod, policy.Namespace, rule.From, rule.Ports, pods)...)
			}
		}
	}
	return rules, isolated
}

// allow is one rule of a policy: any of its peers at any of its ports.
func allow(d direction, self endpoint, namespace string, peers []netv1.NetworkPolicyPeer,
	ports []netv1.NetworkPolicyPort, pods []endpoint) (rules []string) {
	add := func(match string, server *endpoint) {
		for _, port := range portMatches(ports, server) {
			rules = append(rules, strings.TrimSpace(match+port)+" return")
		}
	}
	server := &self // the pod whose port names count: the one that is connected to
	if d.kind == netv1.PolicyTypeEgress {
		server = nil
	}
	if len(peers) == 0 {
		add("", server)
	}
	for _, peer := range peers {
		if block := peer.IPBlock; block != nil {
			if strings.Contains(block.CIDR, ":") {
				continue // pods have no IPv6
			}
			match := fmt.Sprintf("ip %s %s ", d.peer, block.CIDR)
			if len(block.Except) > 0 {
				match += fmt.Sprintf("ip %s != { %s } ", d.peer, strings.Join(block.Except, ", "))
			}
			add(match, server)
			continue
		}
		selected := selectedBy(peer, namespace, pods)
		if server == nil && named(ports) {
			for _, pod := range selected {
				add(fmt.Sprintf("ip %s %s ", d.peer, pod.address), &pod)
			}
		} else if len(selected) > 0 {
			add(fmt.Sprintf("ip %s { %s } ", d.peer, strings.Join(addresses(selected), ", ")), server)
		}
	}
	return rules
}

// selectedBy are the pods that one entry of `from` or `to` means.
func selectedBy(peer netv1.NetworkPolicyPeer, namespace string, pods []endpoint) (out []endpoint) {
	for _, pod := range pods {
		inNamespace := pod.Namespace == namespace
		if peer.NamespaceSelector != nil {
			inNamespace = matches(peer.NamespaceSelector, pod.namespaceLabels)
		}
		if inNamespace && (peer.PodSelector == nil || matches(peer.PodSelector, pod.Labels)) {
			out = append(out, pod)
		}
	}
	return out
}

// portMatches are nftables matches, one for each port; without ports one that is empty: any.
func portMatches(ports []netv1.NetworkPolicyPort, server *endpoint) (out []string) {
	if len(ports) == 0 {
		return []string{""}
	}
	for _, port := range ports {
		protocol := v1.ProtocolTCP
		if port.Protocol != nil {
			protocol = *port.Protocol
		}
		name := strings.ToLower(string(protocol))
		switch {
		case port.Port == nil:
			out = append(out, "meta l4proto "+name)
		case port.Port.Type == intstr.Int && port.EndPort != nil:
			out = append(out, fmt.Sprintf("%s dport %d-%d", name, port.Port.IntVal, *port.EndPort))
		case port.Port.Type == intstr.Int:
			out = append(out, fmt.Sprintf("%s dport %d", name, port.Port.IntVal))
		case server != nil:
			if number := numberOf(server, port.Port.StrVal, protocol); number != 0 {
				out = append(out, fmt.Sprintf("%s dport %d", name, number))
			}
		}
	}
	return out
}

// numberOf is the number of a port's name in a pod, 0 if it has none of that name.
func numberOf(pod *endpoint, name string, protocol v1.Protocol) int32 {
	for _, container := range pod.Spec.Containers {
		for _, port := range container.Ports { // the API server fills in the protocol
			if port.Name == name && port.Protocol == protocol {
				return port.ContainerPort
			}
		}
	}
	return 0
}

func named(ports []netv1.NetworkPolicyPort) bool {
	for _, port := range ports {
		if port.Port != nil && port.Port.Type == intstr.String {
			return true
		}
	}
	return false
}

func matches(selector *metav1.LabelSelector, set map[string]string) bool {
	compiled, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && compiled.Matches(labels.Set(set))
}

func addresses(pods []endpoint) (out []string) {
	for _, pod := range pods {
		out = append(out, pod.address)
	}
	return out
}
