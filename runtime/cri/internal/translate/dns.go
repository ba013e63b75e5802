package translate

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Limits on a pod's DNS configuration (Kubernetes documentation, "DNS for Services
// and Pods"). glibc reads no more than three nameservers either.
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchChars = 2048
)

// Reasons of warnings.
const (
	reasonDNSLimits  = "DNSConfigForming"
	reasonNoCluster  = "MissingClusterDNS"
	reasonBadSetting = "InvalidDNSPolicy"
)

// clusterOptions are used with the resolver of the cluster, so that names of services are
// looked up in its search domains first.
var clusterOptions = [...]string{"ndots:5"}

// dns returns the pod's resolver configuration, and warnings about omitted parts.
func dns(in *Pod) (*criv1.DNSConfig, []Warning) {
	var conf ResolvConf
	var warnings []Warning
	base := in.dnsBase()
	if base == dnsUnknown {
		warnings = append(warnings, Warning{reasonBadSetting, fmt.Sprintf("DNS policy %q is unknown, %q is used",
			in.Spec.Spec.DNSPolicy, v1.DNSClusterFirst)})
		base = dnsCluster
	}
	if base == dnsCluster && len(in.Host.ClusterDNS) == 0 {
		// Processes of the machine have its resolver in any case, and a pod that is not from an API server has the
		// policy only because it is the default.
		if !in.HostProcesses && !podspec.IsStatic(in.Spec) {
			warnings = append(warnings, Warning{reasonNoCluster, fmt.Sprintf(
				"pod: %q. kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. "+
					"Falling back to %q policy.",
				podDescription(in.Spec), v1.DNSClusterFirst, v1.DNSDefault)})
		}
		base = dnsHost
	}
	switch base {
	case dnsCluster:
		conf = in.clusterDNS()
	case dnsHost:
		conf = in.hostDNS()
	}
	if extra := in.Spec.Spec.DNSConfig; extra != nil {
		conf = mergeDNS(conf, extra)
	}
	var cut []Warning
	conf, cut = limitDNS(conf)
	return &criv1.DNSConfig{Servers: conf.Nameservers, Searches: conf.Searches, Options: conf.Options},
		append(warnings, cut...)
}

// dnsBase is the base of a pod's DNS configuration.
type dnsBase int

const (
	dnsNone dnsBase = iota
	dnsHost
	dnsCluster
	dnsUnknown
)

func (p *Pod) dnsBase() dnsBase {
	switch p.Spec.Spec.DNSPolicy {
	case v1.DNSNone:
		return dnsNone
	case v1.DNSDefault:
		return dnsHost
	case v1.DNSClusterFirstWithHostNet:
		return dnsCluster
	case v1.DNSClusterFirst, "":
		if podspec.HasHostNetwork(p.Spec) {
			return dnsHost
		}
		return dnsCluster
	default:
		return dnsUnknown
	}
}

// clusterDNS returns a configuration with the cluster's resolver alone, which forwards
// other queries itself, and with the domains of the cluster before those of the host.
func (p *Pod) clusterDNS() ResolvConf {
	searches := p.ResolvConf.Searches
	if domain := p.Host.ClusterDomain; domain != "" {
		searches = unique([]string{p.Spec.Namespace + ".svc." + domain, "svc." + domain, domain}, searches)
	}
	return ResolvConf{
		Nameservers: slices.Clone(p.Host.ClusterDNS),
		Searches:    slices.Clone(searches),
		Options:     slices.Clone(clusterOptions[:]),
	}
}

// hostDNS returns the host's configuration. For a host without one it returns a
// configuration that resolves nothing, because with an empty one the runtime would use a
// file of its own choice.
func (p *Pod) hostDNS() ResolvConf {
	if p.Host.ResolvConf != "" {
		return ResolvConf{
			Nameservers: slices.Clone(p.ResolvConf.Nameservers),
			Searches:    slices.Clone(p.ResolvConf.Searches),
			Options:     slices.Clone(p.ResolvConf.Options),
		}
	}
	var servers []string
	for _, ip := range p.Host.IPs {
		if isIPv6(ip) {
			servers = append(servers, "::1")
		} else {
			servers = append(servers, "127.0.0.1")
		}
	}
	if len(servers) == 0 {
		servers = []string{"127.0.0.1"}
	}
	return ResolvConf{Nameservers: servers, Searches: []string{"."}}
}

// mergeDNS adds the configuration of the pod's spec. Its options replace those of the same
// name.
func mergeDNS(conf ResolvConf, extra *v1.PodDNSConfig) ResolvConf {
	conf.Nameservers = unique(conf.Nameservers, extra.Nameservers)
	conf.Searches = unique(conf.Searches, extra.Searches)
	options := newOptions(conf.Options)
	for _, o := range extra.Options {
		option := o.Name
		if o.Value != nil && *o.Value != "" {
			option += ":" + *o.Value
		}
		options.set(option)
	}
	conf.Options = options.list
	return conf
}

// unique returns the strings of the lists in their order, each once.
func unique(lists ...[]string) []string {
	var out []string
	seen := map[string]bool{}
	for _, list := range lists {
		for _, s := range list {
			if !seen[s] {
				seen[s] = true
				out = append(out, s)
			}
		}
	}
	return out
}

// limitDNS omits nameservers and domains beyond the limits of resolvers, from the end of
// their lists, and domains that are too long for a name, which make some resolvers fail.
func limitDNS(conf ResolvConf) (ResolvConf, []Warning) {
	var warnings []Warning
	if len(conf.Nameservers) > maxNameservers {
		conf.Nameservers = conf.Nameservers[:maxNameservers]
		warnings = append(warnings, Warning{reasonDNSLimits,
			"Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: " +
				strings.Join(conf.Nameservers, " ")})
	}
	searches := conf.Searches[:min(len(conf.Searches), maxSearches)]
	searches = slices.DeleteFunc(slices.Clone(searches), func(s string) bool {
		return len(s) > validation.DNS1123SubdomainMaxLength
	})
	for len(strings.Join(searches, " ")) > maxSearchChars {
		searches = searches[:len(searches)-1]
	}
	if len(searches) != len(conf.Searches) {
		conf.Searches = searches
		warnings = append(warnings, Warning{reasonDNSLimits,
			"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " +
				strings.Join(searches, " ")})
	}
	return conf, warnings
}
