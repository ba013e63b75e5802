package kubeletkit

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// The limits of the search line in a pod's resolv.conf are those of the API
// (MaxDNSSearchPaths, MaxDNSSearchListChars); pods of a cluster domain need three searches of their own.
const (
	maxSearches    = 32
	ownSearches    = 3
	maxSearchChars = 2048
	maxResolvConf  = 10 << 20 // bytes, as in kubelet
)

// checkResolvConf returns the message of kubelet's event CheckLimitsForResolvConf if the host's file has more search domains than
// pods can have, and "" otherwise. What exceeds the limits is left out in the files of pods.
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
		return fmt.Sprintf("Resolv.conf file '%s' contains search line consisting of more than %d domains!", host.ResolvConf, limit)
	}
	for _, search := range searches {
		if len(search) > validation.DNS1123SubdomainMaxLength {
			return fmt.Sprintf("Resolv.conf file %q contains a search path which length is more than allowed %d chars!", host.ResolvConf, validation.DNS1123SubdomainMaxLength)
		}
	}
	if len(strings.Join(searches, " ")) > maxSearchChars {
		return fmt.Sprintf("Resolv.conf file '%s' contains search line which length is more than allowed %d chars!", host.ResolvConf, maxSearchChars)
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
