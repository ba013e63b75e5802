package translate

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Lengths that fit into the kernel's nodename, 64 bytes and a NUL. A short name
// leaves room for one byte less, as kubelet has it.
const (
	maxHostname = 63
	maxFQDN     = 64
)

// hostname returns the pod's name as a host, and the domain it is in, "" without a
// subdomain. Both go into the pod's hosts file.
func hostname(in *Pod) (name, domain string, err error) {
	spec := &in.Spec.Spec
	if spec.HostnameOverride != nil { // KEP-4762: this and nothing else
		name = *spec.HostnameOverride
		if errs := validation.IsDNS1123Subdomain(name); len(errs) != 0 {
			return "", "", fmt.Errorf("pod HostnameOverride %q is not a valid DNS subdomain: %s", name, strings.Join(errs, ";"))
		}
		name, err = cutHostname(name)
		return name, "", err
	}
	name = in.Spec.Name
	if spec.Hostname != "" {
		name = spec.Hostname
		if errs := validation.IsDNS1123Label(name); len(errs) != 0 {
			return "", "", fmt.Errorf("pod Hostname %q is not a valid DNS label: %s", name, strings.Join(errs, ";"))
		}
	}
	if name, err = cutHostname(name); err != nil {
		return "", "", err
	}
	if spec.Subdomain != "" {
		if errs := validation.IsDNS1123Label(spec.Subdomain); len(errs) != 0 {
			return "", "", fmt.Errorf("pod Subdomain %q is not a valid DNS label: %s", spec.Subdomain, strings.Join(errs, ";"))
		}
		domain = spec.Subdomain + "." + in.Spec.Namespace + ".svc." + in.Host.ClusterDomain
	}
	return name, domain, nil
}

// cutHostname shortens a name that is too long, so that it still ends in a letter
// or digit.
func cutHostname(name string) (string, error) {
	if len(name) <= maxHostname {
		return name, nil
	}
	cut := strings.TrimRight(name[:maxHostname], "-.")
	if cut == "" {
		return "", fmt.Errorf("pod hostname %q is invalid", name)
	}
	return cut, nil
}

// kernelHostname is what gethostname returns in the pod.
func kernelHostname(in *Pod) (string, error) {
	name, domain, err := hostname(in)
	if err != nil || domain == "" || !isTrue(in.Spec.Spec.SetHostnameAsFQDN) {
		return name, err
	}
	fqdn := name + "." + domain
	if len(fqdn) > maxFQDN {
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested)",
			fqdn, maxFQDN, len(fqdn))
	}
	return fqdn, nil
}
