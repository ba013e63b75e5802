package client

import (
	"cmp"
	"fmt"
	goruntime "runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	apiversion "k8s.io/apimachinery/pkg/version"

	clusternode "github.com/kubeletkit/kubeletkit/cluster/node"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
)

// Version is what is known of this program.
type Version struct {
	Version    string `json:"version"`
	Revision   string `json:"revision,omitempty"`
	Kubernetes string `json:"kubernetes"` // the release that it behaves like
	Go         string `json:"go"`
	Platform   string `json:"platform"`

	program config.Program
}

// ProgramVersion returns the version of the program. If version is "", it is that of the main module.
func ProgramVersion(program config.Program, version string) Version {
	v := Version{program: program, Version: "(unknown version)", Kubernetes: clusternode.DefaultKubeletVersion,
		Go:       goruntime.Version(),
		Platform: goruntime.GOOS + "/" + goruntime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		v.Version = info.Main.Version
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Revision = s.Value
			}
		}
	}
	v.Version = cmp.Or(version, v.Version)
	return v
}

// String returns the version on one line.
func (v Version) String() string { return v.program.String() + " " + v.Version + " " + v.Go }

// Raw returns the version as kubelet has it, for --version=raw.
func (v Version) Raw() apiversion.Info {
	major, rest, _ := strings.Cut(strings.TrimPrefix(v.Kubernetes, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return apiversion.Info{Major: major, Minor: minor, GitVersion: v.Kubernetes, GitCommit: v.Revision,
		GoVersion: v.Go, Compiler: goruntime.Compiler, Platform: v.Platform}
}

// versionCommand is the command version.
func versionCommand(e Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "print the version of this program", GroupID: groupOther,
		Example: "  minikubelet version -o json",
	}
	c := &call{Env: e, cmd: cmd}
	c.outputFlag(cmd.Flags())
	c.complete()
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if c.args = args; len(args) > 0 {
			return c.noArgs()
		}
		v := ProgramVersion(e.Program, e.Version)
		if c.output.structured() {
			return PrintValue(e.Out, string(c.output), v)
		}
		_, err := fmt.Fprintf(e.Out, "%s\nKubernetes %s\n", v, v.Kubernetes)
		return err
	}
	return cmd
}
