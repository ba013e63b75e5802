package translate

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Limits of the kernel's nodename, 64 bytes and a NUL. A short name has one byte less, as in
// kubelet.
const (
	maxHostname = 63
	maxFQDN     = 64
)

// hostname returns the pod's host name and its domain, "" without a subdomain. Both are
// written to the pod's hosts file.
func hostname(in *Pod) (name, domain string, err error) {
	spec := &in.Spec.Spec
	if spec.HostnameOverride != nil { // KEP-4762: it replaces everything else
		name = *spec.HostnameOverride
		if errs := validation.IsDNS1123Subdomain(name); len(errs) != 0 {
			return "", "", fmt.Errorf("pod HostnameOverride %q is not a valid DNS subdomain: %s", name,
				strings.Join(errs, ";"))
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
			return "", "", fmt.Errorf("pod Subdomain %q is not a valid DNS label: %s", spec.Subdomain,
				strings.Join(errs, ";"))
		}
		domain = spec.Subdomain + "." + in.Spec.Namespace + ".svc." + in.Host.ClusterDomain
	}
	return name, domain, nil
}

// cutHostname shortens a name that is too long. The result ends in a letter or digit.
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

// kernelHostname returns the result of gethostname in the pod.
func kernelHostname(in *Pod) (string, error) {
	name, domain, err := hostname(in)
	if err != nil || domain == "" || !isTrue(in.Spec.Spec.SetHostnameAsFQDN) {
		return name, err
	}
	fqdn := name + "." + domain
	if len(fqdn) > maxFQDN {
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long "+
			"(%d characters is the max, %d characters requested)",
			fqdn, maxFQDN, len(fqdn))
	}
	return fqdn, nil
}
