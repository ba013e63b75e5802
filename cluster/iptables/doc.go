// Package iptables makes the chains of iptables that kubelet makes for other programs.
//
// A machine can have two kinds of iptables, legacy and nft. Programs in containers, such as kube-proxy
// and the plugins of CNI, bring both, and have to use the kind of the machine: they choose the kind in
// which the table mangle has the chain KUBE-IPTABLES-HINT or KUBE-KUBELET-CANARY.
//
// For IPv4, [Chains] also makes the rule of kubelet that drops packets from elsewhere to addresses of
// loopback (kubernetes#90259): kube-proxy may let the kernel route them.
//
//	chains := iptables.New(iptables.Options{Logger: log})
//	err := agent.Add("iptables", chains.Run)
//
// The chains are made by the programs iptables and ip6tables of the machine, which need CAP_NET_ADMIN.
// Once a minute they are asked for the canary in mangle, which costs two executions of about 2 ms; if it is
// gone, since somebody has flushed the tables, everything is made again. Nothing is removed when Run
// returns, as with kubelet.
package iptables
