package kubeletkit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	goruntime "runtime"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeletkit/kubeletkit/internal/machine"
	"github.com/kubeletkit/kubeletkit/internal/nodenet"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// DetectHost returns what it finds of the machine: its name, its address on the interface
// of the default route (none while there is no route), its processors and memory, the size of the
// file system of rootDir, which need not exist, its resolver, the release of its kernel, and whether it has AppArmor,
// and the SELinux label of files of containers.
func DetectHost(rootDir string) (*runtime.Host, error) {
	name, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	h := &runtime.Host{Hostname: name, KernelRelease: machine.KernelRelease(), AppArmor: machine.HasAppArmor(),
		FileLabel: machine.FileLabel(),
		Allocatable: v1.ResourceList{
			v1.ResourceCPU: *resource.NewQuantity(int64(goruntime.NumCPU()), resource.DecimalSI),
		}}
	h.IPs = nodenet.DetectIPs(nil)() // unknown while there is no route
	if total, err := machine.TotalMemory(); err == nil {
		h.Allocatable[v1.ResourceMemory] = *resource.NewQuantity(total, resource.BinarySI)
	}
	if disk, err := safefile.DiskSizeAt(rootDir); err == nil {
		h.Allocatable[v1.ResourceEphemeralStorage] = *resource.NewQuantity(int64(min(disk.Capacity, math.MaxInt64)),
			resource.BinarySI)
	}
	const resolvConf = "/etc/resolv.conf"
	if _, err := os.Stat(resolvConf); err == nil {
		h.ResolvConf = resolvConf
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return h, nil
}

// DetectHostIPs returns a function for [Options].HostIPs: it returns the address of the machine
// on the interface of the default route, and none until there is a route. While there is no
// route any more, it returns the last address. It looks again after 10 s, and while the address
// is unknown after 1, 2, 4 and 8 s first. The routes are read if the kernel chooses another source
// address, and every 5 minutes. preferred is an address of the preferred family; nil means IPv4.
func DetectHostIPs(preferred net.IP) func() []string {
	return nodenet.DetectIPs(preferred)
}

// hostIPs returns the function that has the addresses of the node.
func hostIPs(opts Options) func() []string {
	var given []string
	if opts.Host != nil {
		given = opts.Host.IPs
	}
	return nodenet.HostIPs(opts.HostIPs, given)
}

// hostFacts returns the host with what the options add to it.
func hostFacts(opts Options) (*runtime.Host, error) {
	h := opts.Host
	if h == nil {
		var err error
		if h, err = DetectHost(opts.RootDir); err != nil {
			return nil, err
		}
	}
	facts := *h
	if facts.NodeName == "" {
		facts.NodeName = opts.NodeName
	}
	if facts.PodLogsDir == "" {
		facts.PodLogsDir = defaultPodLogsDir(opts.RootDir)
	}
	return &facts, nil
}

// The limits of the search line in a pod's resolv.conf are those of the API
// (MaxDNSSearchPaths, MaxDNSSearchListChars); pods of a cluster domain need three searches of their own.
const (
	maxSearches    = 32
	ownSearches    = 3
	maxSearchChars = 2048
	maxResolvConf  = 10 << 20 // bytes, as in kubelet
)

// checkResolvConf returns the message of kubelet's event CheckLimitsForResolvConf if the host's file has more search
// domains than pods can have, and "" otherwise. What exceeds the limits is left out in the files of pods.
func checkResolvConf(ctx context.Context, host *runtime.Host) string {
	if host.ResolvConf == "" {
		return ""
	}
	content, err := new(safefile.Reader).ReadFile(ctx, host.ResolvConf, maxResolvConf)
	if err != nil {
		return err.Error()
	}
	searches, limit := searchesOf(string(content)), maxSearches
	if host.ClusterDomain != "" {
		limit -= ownSearches
	}
	if len(searches) > limit {
		return fmt.Sprintf("Resolv.conf file '%s' contains search line consisting of more than %d domains!",
			host.ResolvConf, limit)
	}
	for _, search := range searches {
		if len(search) > validation.DNS1123SubdomainMaxLength {
			return fmt.Sprintf("Resolv.conf file %q contains a search path which length is more than allowed %d chars!",
				host.ResolvConf, validation.DNS1123SubdomainMaxLength)
		}
	}
	if len(strings.Join(searches, " ")) > maxSearchChars {
		return fmt.Sprintf("Resolv.conf file '%s' contains search line which length is more than allowed %d chars!",
			host.ResolvConf, maxSearchChars)
	}
	return ""
}

// searchesOf returns the domains of the last search line of a resolv.conf.
func searchesOf(content string) (searches []string) {
	for line := range strings.Lines(content) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "search" {
			continue
		}
		searches = nil
		for _, domain := range fields[1:] {
			if domain != "." {
				searches = append(searches, strings.TrimSuffix(domain, "."))
			}
		}
	}
	return searches
}
